/**
 * The tables of the credentials database: the script that creates them, and commands to list and change rows.
 * Each command is one statement or one transaction.
 */
import pg from 'pg'
import { type Loaded, loaded, notDone, notLoaded } from '../../base/result.ts'
import { parseTime } from '../../base/schemas.ts'
import { MAX_SCOPE_LENGTH } from '../../token/scopes.ts'
import type { CredentialEditor, Editors, RevocationEditor } from '../editor.ts'
import { NAME_TAKEN, NO_SUCH_NAME, NO_SUCH_REVOCATION } from '../editor.ts'
import type { Revocation } from '../revocation-list.ts'
import { clientConfig, databaseFailure, readUrlFile } from './database-pool.ts'
import type { CredentialRow } from './snapshot.ts'
import { readRevision, rowProblem, SELECT_CREDENTIALS, SELECT_REVOCATIONS } from './snapshot.ts'

const LOCK_MS = 10_000
const STATEMENT_MS = 120_000

/** With the time to connect, the three statements of a check take less than 5 s. */
const CHECK_STATEMENT_MS = 900

const NAME_KEY = 'storage_auth.name_key(account_id, access_key)'
const BY_NAME = `${NAME_KEY} = storage_auth.name_key($1, $2)`

async function inDatabase<T>(
  urlFile: string,
  statementMs: number,
  run: (client: pg.Client) => Promise<T>,
): Promise<Loaded<T>> {
  const named = await readUrlFile(urlFile)
  if (!named.ok) return named
  const { value: target, warnings } = named
  const client = new pg.Client(clientConfig(target, statementMs))
  client.on('error', () => {}) // without a listener, the event would end the process; the next query rejects anyway
  try {
    await client.connect()
    await client.query(`SET lock_timeout = ${LOCK_MS}`)
    return loaded(await run(client), warnings)
  } catch (cause) {
    const { kind, message } = databaseFailure(cause)
    const problem = `${urlFile}: the database ${target.label}: ${message}`
    return kind === 'unusable' ? notLoaded([problem]) : notDone(problem)
  } finally {
    void client.end() // not awaited: a server may hang
  }
}

export function tableEditors(urlFile: string): Editors {
  async function change(text: string, values: unknown[], ifNone: string): Promise<Loaded> {
    const changed = await inDatabase(urlFile, STATEMENT_MS, (client) => client.query(text, values))
    if (!changed.ok) return changed
    return changed.value.rowCount === 0 ? notDone(`${urlFile}: ${ifNone}`) : loaded(undefined)
  }
  const list = <T extends object>(text: string) =>
    inDatabase(urlFile, STATEMENT_MS, async (client) => (await client.query<T>(text)).rows)
  const credentials: CredentialEditor = {
    async list() {
      const order = 'ORDER BY min(id) OVER (PARTITION BY account_id), id'
      const listed = await list<CredentialRow>(`${SELECT_CREDENTIALS} ${order}`)
      if (!listed.ok) return listed
      const problems = listed.value.flatMap((row) => rowProblem(row) ?? [])
      const rows = listed.value.filter((row) => rowProblem(row) === undefined)
      return loaded(rows, [...listed.warnings, ...problems.map((problem) => `${problem}: it is left out`)])
    },
    add: ({ accountId, accessKey, secretHash, expiresAt, scope }) =>
      change(
        `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash, expires_at, scope)
         VALUES ($1, $2, $3, to_timestamp($4::float8 / 1000), $5) ON CONFLICT (${NAME_KEY}) DO NOTHING`,
        [accountId, accessKey, secretHash, expiresAt === undefined ? null : parseTime(expiresAt), scope],
        NAME_TAKEN,
      ),
    update({ accountId, accessKey }, update) {
      const [column, value] = 'scope' in update ? ['scope', update.scope] : ['disabled', update.disabled]
      const text = `UPDATE storage_auth.credentials SET ${column} = $3 WHERE ${BY_NAME}`
      return change(text, [accountId, accessKey, value], NO_SUCH_NAME)
    },
    remove: ({ accountId, accessKey }) =>
      change(`DELETE FROM storage_auth.credentials WHERE ${BY_NAME}`, [accountId, accessKey], NO_SUCH_NAME),
  }
  const revocations: RevocationEditor = {
    list: () => list<Revocation>(`${SELECT_REVOCATIONS} ORDER BY id`),
    add: ({ jti, accountId, accessKey, issuedBeforeMs }) =>
      change(
        `INSERT INTO storage_auth.revocations (jti, account_id, access_key, issued_before)
         VALUES ($1, $2, $3, to_timestamp($4::float8 / 1000))`,
        [jti, accountId, accessKey, issuedBeforeMs],
        NO_SUCH_REVOCATION,
      ),
    remove({ jti, accountId, accessKey }) {
      const text = 'DELETE FROM storage_auth.revocations WHERE jti = $1 OR account_id = $2 OR access_key = $3'
      return change(text, [jti, accountId, accessKey], NO_SUCH_REVOCATION)
    },
  }
  return { credentials, revocations }
}

/** Checks within 5 s whether a sidecar can use the tables. */
export const checkDatabase = (urlFile: string) =>
  inDatabase(urlFile, CHECK_STATEMENT_MS, async (client) => {
    await readRevision(client)
    await client.query(`${SELECT_CREDENTIALS} LIMIT 0; ${SELECT_REVOCATIONS} LIMIT 0`)
  })

/** Creates the tables, or brings them up to date. Resolves with whether they are new. */
export const migrate = (urlFile: string) =>
  inDatabase(urlFile, STATEMENT_MS, async (client) => {
    const { rows } = await client.query(`SELECT to_regclass('storage_auth.credentials') IS NULL AS is_new`)
    await client.query(TABLES_SQL)
    return rows[0]?.is_new === true
  })

/** The rule of `nameProblem`, for rows written by hand. */
const nameCheck = (column: string) =>
  `char_length(${column}) BETWEEN 1 AND 1024 AND ${column} !~ '[\\u0001-\\u001F\\u007F-\\u009F]'`

/** The rule of `parseScope`, without its rule for the path. */
const ITEM = 'storage\\.(read|create|modify):/[!-~]*'

/** The trigger fires before a change and locks the revision, so that ids of revocations are in the order of commits. */
const trigger = (table: string) => `
DROP TRIGGER IF EXISTS record_change ON storage_auth.${table};
CREATE TRIGGER record_change BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON storage_auth.${table}
  FOR EACH STATEMENT EXECUTE FUNCTION storage_auth.record_change();`

/**
 * One idempotent script for PostgreSQL 13 or newer. Triggers count changes in `revision`.
 * `stamp` is random: a restore from a backup may repeat a number, but not number and stamp.
 * `other_change` is the stamp of the last change other than new revocations, which logouts add often.
 * Each run changes both stamps, so that sidecars also read changes that no trigger recorded.
 * Triggers named `note_change` stay: running sidecars of an earlier version need them.
 */
export const TABLES_SQL = `
BEGIN;
SELECT pg_advisory_xact_lock(1396790083);
DO $$ BEGIN
  IF current_setting('server_encoding') <> 'UTF8' THEN RAISE EXCEPTION 'its encoding must be UTF8'; END IF;
  -- CREATE SCHEMA IF NOT EXISTS needs its privilege even where the schema exists.
  IF to_regnamespace('storage_auth') IS NULL THEN CREATE SCHEMA storage_auth; END IF;
END $$;
CREATE TABLE IF NOT EXISTS storage_auth.credentials (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  account_id text COLLATE "C" NOT NULL CHECK (${nameCheck('account_id')}),
  access_key text COLLATE "C" NOT NULL CHECK (${nameCheck('access_key')}),
  secret_hash text NOT NULL CHECK (secret_hash ~ '^\\$(sha256|scrypt)\\$'),
  expires_at timestamptz CHECK (isfinite(expires_at) AND expires_at < '10000-01-01 00:00:00+00'),
  disabled boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE storage_auth.credentials ADD COLUMN IF NOT EXISTS scope text COLLATE "C"
  CHECK (char_length(scope) <= ${MAX_SCOPE_LENGTH} AND scope ~ '^${ITEM}( ${ITEM})*$');
-- Hashed, because an index entry holds at most 2.7 kB; no name contains U+0001.
CREATE OR REPLACE FUNCTION storage_auth.name_key(account_id text, access_key text) RETURNS bytea
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
  AS $$ SELECT sha256(convert_to($1 || chr(1) || $2, 'UTF8')) $$;
CREATE UNIQUE INDEX IF NOT EXISTS credentials_name
  ON storage_auth.credentials (storage_auth.name_key(account_id, access_key));

CREATE TABLE IF NOT EXISTS storage_auth.revocations (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  jti text CHECK (${nameCheck('jti')}),
  account_id text CHECK (${nameCheck('account_id')}),
  access_key text CHECK (${nameCheck('access_key')}),
  issued_before timestamptz CHECK (isfinite(issued_before) AND issued_before < '10000-01-01 00:00:00+00'),
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT exactly_one_target CHECK (num_nonnulls(jti, account_id, access_key) = 1),
  CONSTRAINT jti_has_no_issued_before CHECK (jti IS NULL OR issued_before IS NULL)
);
-- When the token ends: later revocations remove the row then.
ALTER TABLE storage_auth.revocations ADD COLUMN IF NOT EXISTS expires_at timestamptz;
CREATE INDEX IF NOT EXISTS revocations_expires_at
  ON storage_auth.revocations (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS storage_auth.revision (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  number bigint NOT NULL,
  stamp uuid NOT NULL
);
ALTER TABLE storage_auth.revision ADD COLUMN IF NOT EXISTS other_change uuid NOT NULL DEFAULT gen_random_uuid();
INSERT INTO storage_auth.revision (number, stamp) VALUES (1, gen_random_uuid())
  ON CONFLICT (singleton) DO UPDATE SET stamp = gen_random_uuid(), other_change = gen_random_uuid();

-- Runs as the owner. A role that changes credentials thus needs no right to the revision.
-- A role that adds revocations needs no right to remove them.
CREATE OR REPLACE FUNCTION storage_auth.record_change() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
DECLARE
  new_stamp uuid := gen_random_uuid();
  -- At depth 2, the change is the DELETE below.
  only_adds boolean := TG_TABLE_NAME = 'revocations'
    AND (TG_OP = 'INSERT' OR (TG_OP = 'DELETE' AND pg_trigger_depth() > 1));
BEGIN
  UPDATE storage_auth.revision SET number = number + 1, stamp = new_stamp,
    other_change = CASE WHEN only_adds THEN other_change ELSE new_stamp END;
  IF TG_TABLE_NAME = 'revocations' AND TG_OP = 'INSERT' THEN
    DELETE FROM storage_auth.revocations WHERE id IN (
      SELECT id FROM storage_auth.revocations WHERE expires_at < now() ORDER BY expires_at LIMIT 1000);
  END IF;
  RETURN NULL;
END
$$;
${trigger('credentials')}${trigger('revocations')}
COMMIT`
