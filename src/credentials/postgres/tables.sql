-- The tables of credentials and revocations, for PostgreSQL 13 or newer. This script may be run again.
-- Names and scopes obey the rules of `nameProblem` and `parseScope` (except its rule for paths), for rows written by hand.
-- Triggers count changes in "revision". "stamp" is random: a restore from a backup may repeat a number, but not number and stamp.
-- "other_change" is the stamp of the last change other than new revocations, which logouts add often.
-- Each run changes both stamps, so that sidecars also read changes that no trigger recorded.
-- Triggers named "note_change" stay: running sidecars of an earlier version need them.
BEGIN;
SELECT pg_advisory_xact_lock(1396790083);
DO $$ BEGIN
  IF current_setting('server_encoding') <> 'UTF8' THEN RAISE EXCEPTION 'its encoding must be UTF8'; END IF;
  -- CREATE SCHEMA IF NOT EXISTS needs its privilege even where the schema exists.
  IF to_regnamespace('storage_auth') IS NULL THEN CREATE SCHEMA storage_auth; END IF;
END $$;
CREATE TABLE IF NOT EXISTS storage_auth.credentials (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  account_id text COLLATE "C" NOT NULL CHECK (char_length(account_id) BETWEEN 1 AND 1024 AND account_id !~ '[\u0001-\u001F\u007F-\u009F]'),
  access_key text COLLATE "C" NOT NULL CHECK (char_length(access_key) BETWEEN 1 AND 1024 AND access_key !~ '[\u0001-\u001F\u007F-\u009F]'),
  secret_hash text NOT NULL CHECK (secret_hash ~ '^\$(sha256|scrypt)\$'),
  expires_at timestamptz CHECK (isfinite(expires_at) AND expires_at < '10000-01-01 00:00:00+00'),
  disabled boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE storage_auth.credentials ADD COLUMN IF NOT EXISTS scope text COLLATE "C"
  CHECK (char_length(scope) <= 4096 AND scope ~ '^storage\.(read|create|modify):/[!-~]*( storage\.(read|create|modify):/[!-~]*)*$');
-- Hashed, because an index entry holds at most 2.7 kB; no name contains U+0001.
CREATE OR REPLACE FUNCTION storage_auth.name_key(account_id text, access_key text) RETURNS bytea
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
  AS $$ SELECT sha256(convert_to($1 || chr(1) || $2, 'UTF8')) $$;
CREATE UNIQUE INDEX IF NOT EXISTS credentials_name
  ON storage_auth.credentials (storage_auth.name_key(account_id, access_key));

CREATE TABLE IF NOT EXISTS storage_auth.revocations (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  jti text CHECK (char_length(jti) BETWEEN 1 AND 1024 AND jti !~ '[\u0001-\u001F\u007F-\u009F]'),
  account_id text CHECK (char_length(account_id) BETWEEN 1 AND 1024 AND account_id !~ '[\u0001-\u001F\u007F-\u009F]'),
  access_key text CHECK (char_length(access_key) BETWEEN 1 AND 1024 AND access_key !~ '[\u0001-\u001F\u007F-\u009F]'),
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

-- They fire before a change and lock the revision, so that ids of revocations are in the order of commits.
DROP TRIGGER IF EXISTS record_change ON storage_auth.credentials;
CREATE TRIGGER record_change BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON storage_auth.credentials
  FOR EACH STATEMENT EXECUTE FUNCTION storage_auth.record_change();
DROP TRIGGER IF EXISTS record_change ON storage_auth.revocations;
CREATE TRIGGER record_change BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON storage_auth.revocations
  FOR EACH STATEMENT EXECUTE FUNCTION storage_auth.record_change();
COMMIT;
