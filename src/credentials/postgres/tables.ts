/**
 * The tables of the credentials database, as one idempotent script for PostgreSQL 13 or newer. Triggers count changes
 * in `revision`. `stamp` is random: after a restore from a backup a number may come again, the pair does not. `base` is
 * the stamp of the last change other than new revocations, which logouts make often; it counts only while `base_of`
 * equals `stamp`, which a trigger of an earlier version leaves as it was.
 */
import { MAX_SCOPE_LENGTH } from '../../token/scopes.ts'

/** The rule of `nameProblem`, for rows written by hand. */
const isName = (column: string) =>
  `char_length(${column}) BETWEEN 1 AND 1024 AND ${column} !~ '[\\u0001-\\u001F\\u007F-\\u009F]'`

/** The rule of `parseScope` without that of the path. */
const ITEM = 'storage\\.(read|create|modify):/[!-~]*'

/** Before the change: the lock of the revision orders all changes, so that ids of revocations follow their commits. */
const trigger = (table: string) => `
DROP TRIGGER IF EXISTS note_change ON storage_auth.${table};
CREATE TRIGGER note_change BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON storage_auth.${table}
  FOR EACH STATEMENT EXECUTE FUNCTION storage_auth.note_change();`

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
  account_id text COLLATE "C" NOT NULL CHECK (${isName('account_id')}),
  access_key text COLLATE "C" NOT NULL CHECK (${isName('access_key')}),
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
  jti text CHECK (${isName('jti')}),
  account_id text CHECK (${isName('account_id')}),
  access_key text CHECK (${isName('access_key')}),
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
ALTER TABLE storage_auth.revision ADD COLUMN IF NOT EXISTS base uuid, ADD COLUMN IF NOT EXISTS base_of uuid;
INSERT INTO storage_auth.revision (number, stamp) VALUES (1, gen_random_uuid()) ON CONFLICT DO NOTHING;

-- Runs as the owner: a role that changes credentials needs no right to the revision, and one that adds revocations
-- none to remove them.
CREATE OR REPLACE FUNCTION storage_auth.note_change() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
DECLARE
  new_stamp uuid := gen_random_uuid();
  -- At depth 2 it is the DELETE below.
  keeps_base boolean := TG_TABLE_NAME = 'revocations' AND (TG_OP = 'INSERT' OR pg_trigger_depth() > 1);
BEGIN
  UPDATE storage_auth.revision SET number = number + 1, stamp = new_stamp, base_of = new_stamp,
    base = CASE WHEN NOT keeps_base THEN new_stamp WHEN base_of = stamp THEN base ELSE stamp END;
  IF TG_TABLE_NAME = 'revocations' AND TG_OP = 'INSERT' THEN
    DELETE FROM storage_auth.revocations WHERE id IN (
      SELECT id FROM storage_auth.revocations WHERE expires_at < now() ORDER BY expires_at LIMIT 1000);
  END IF;
  RETURN NULL;
END
$$;
${trigger('credentials')}${trigger('revocations')}
COMMIT`
