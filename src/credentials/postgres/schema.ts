/**
 * The tables of the credentials database, as a list of migrations.
 *
 * `credentials` and `revocations` are what people and commands change, in SQL as well. Triggers write down each
 * change, so that replicas find it whoever made it:
 *
 * - `revision` has one row: a number that grows with each statement that changes something, and a random stamp. Its
 *   row lock puts writers in order, so that revisions become visible in the order of their numbers. The pair of
 *   both names one state of the tables: after a restore from a backup a number may come again, the pair does not.
 * - `changes` tells which rows the last revisions touched. A row without `row_id` stands for all of them: after
 *   TRUNCATE, or where a statement touched so many that reading all is as cheap.
 *
 * A migration that has been released is never changed, only followed by another, and it leaves the tables readable
 * for the version before: replicas are upgraded one by one.
 *
 * @module
 */

/** One step. */
export interface Migration {
  readonly version: number
  readonly sql: string
}

/** The schema all of it is in. */
export const SCHEMA = 'storage_auth'

/** Where changes are announced (`LISTEN`). */
export const CHANNEL = 'storage_auth'

/** How many rows a statement may touch before replicas read everything anew. */
const MOST_ROWS_NOTED = 1000
/** How many revisions back the touched rows are known. */
const REVISIONS_NOTED = 1000

/**
 * Names hold no control characters, so that U+0001 between them makes a pair unambiguous. They are hashed for the
 * index because an index entry holds at most 2.7 kB, and two names of 1024 characters need up to 8 kB.
 */
const FIRST = `
CREATE TABLE storage_auth.credentials (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  account_id text COLLATE "C" NOT NULL CHECK (${isName('account_id')}),
  access_key text COLLATE "C" NOT NULL CHECK (${isName('access_key')}),
  secret_hash text NOT NULL CHECK (secret_hash ~ '^\\$(sha256|scrypt)\\$'),
  expires_at timestamptz CHECK (isfinite(expires_at) AND expires_at < '10000-01-01 00:00:00+00'),
  disabled boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE FUNCTION storage_auth.name_key(account_id text, access_key text) RETURNS bytea
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
  AS $$ SELECT sha256(convert_to($1 || chr(1) || $2, 'UTF8')) $$;
CREATE UNIQUE INDEX credentials_name ON storage_auth.credentials (storage_auth.name_key(account_id, access_key));

CREATE TABLE storage_auth.revocations (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  jti text CHECK (${isName('jti')}),
  account_id text CHECK (${isName('account_id')}),
  access_key text CHECK (${isName('access_key')}),
  issued_before timestamptz
    CHECK (isfinite(issued_before) AND issued_before < '10000-01-01 00:00:00+00'),
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT names_one_thing CHECK (num_nonnulls(jti, account_id, access_key) = 1),
  CONSTRAINT a_token_is_revoked_whole CHECK (jti IS NULL OR issued_before IS NULL)
);

CREATE TABLE storage_auth.revision (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  number bigint NOT NULL,
  stamp uuid NOT NULL
);
INSERT INTO storage_auth.revision (number, stamp) VALUES (1, gen_random_uuid());

CREATE TABLE storage_auth.changes (
  revision bigint NOT NULL,
  stamp uuid NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  relation text NOT NULL,
  row_id bigint
);
CREATE INDEX changes_revision ON storage_auth.changes (revision);
INSERT INTO storage_auth.changes (revision, stamp, relation)
  SELECT number, stamp, relation FROM storage_auth.revision, (VALUES ('credentials'), ('revocations')) AS both_of (relation);

-- Runs as the owner of the tables: whoever may change credentials needs no right to what is noted of it.
CREATE FUNCTION storage_auth.note_change() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
DECLARE
  touched bigint[];
  head record;
BEGIN
  IF TG_OP = 'UPDATE' THEN
    SELECT array_agg(id) INTO touched
      FROM (SELECT id FROM former UNION SELECT id FROM changed LIMIT ${MOST_ROWS_NOTED + 1}) AS touched_rows;
  ELSIF TG_OP <> 'TRUNCATE' THEN
    SELECT array_agg(id) INTO touched FROM (SELECT id FROM changed LIMIT ${MOST_ROWS_NOTED + 1}) AS touched_rows;
  END IF;
  IF touched IS NULL AND TG_OP <> 'TRUNCATE' THEN
    RETURN NULL; -- a statement that found no row
  END IF;
  UPDATE storage_auth.revision SET number = number + 1, stamp = gen_random_uuid() RETURNING number, stamp INTO head;
  IF cardinality(touched) <= ${MOST_ROWS_NOTED} THEN
    INSERT INTO storage_auth.changes (revision, stamp, relation, row_id)
      SELECT head.number, head.stamp, TG_TABLE_NAME, unnest(touched);
  ELSE
    INSERT INTO storage_auth.changes (revision, stamp, relation) VALUES (head.number, head.stamp, TG_TABLE_NAME);
  END IF;
  DELETE FROM storage_auth.changes WHERE revision <= head.number - ${REVISIONS_NOTED};
  PERFORM pg_notify('${CHANNEL}', '');
  RETURN NULL;
END
$$;
${['credentials', 'revocations'].map(triggers).join('')}`

/** The rule of `nameProblem`, for those who write by hand. */
function isName(column: string): string {
  return `char_length(${column}) BETWEEN 1 AND 1024 AND ${column} !~ '[\\u0001-\\u001F\\u007F-\\u009F]'`
}

function triggers(table: string): string {
  const on = (operation: string, rows: string) => `
CREATE TRIGGER note_${operation.toLowerCase()} AFTER ${operation} ON storage_auth.${table} ${rows}
  FOR EACH STATEMENT EXECUTE FUNCTION storage_auth.note_change();`
  return [
    on('INSERT', 'REFERENCING NEW TABLE AS changed'),
    on('UPDATE', 'REFERENCING OLD TABLE AS former NEW TABLE AS changed'),
    on('DELETE', 'REFERENCING OLD TABLE AS changed'),
    on('TRUNCATE', ''),
  ].join('')
}

/** Every migration, in order. */
export const MIGRATIONS: readonly Migration[] = [{ version: 1, sql: FIRST }]

/** The oldest version this program can read. */
export const LEAST_VERSION = 1
