-- The tables of credentials and revocations, for PostgreSQL 13 or newer. This script may be run again.
-- Names and scopes obey the rules of `nameProblem` and `parseScope` (except its rule for paths), for rows written by hand.
-- Triggers count changes in "revision". "stamp" is random: a restore from a backup may repeat a number, but not number and stamp.
-- "history" has the last 10,000 pairs of both: a sidecar whose pair is there reads only what has changed since.
--   credentials: if "credentials_change" differs, the stamp of their last change, rows whose "changed" is a greater number,
--                and "removed_credentials" with a greater number;
--                all rows, if "credentials_reset" differs, the stamp of the last TRUNCATE or new name
--   revocations: rows with a greater id, and "removed_revocations" with a greater number;
--                all rows, if "revocations_reset" differs, the stamp of the last UPDATE or TRUNCATE
-- Each run changes all stamps, so that sidecars also read changes that no trigger recorded.
-- Running sidecars of an earlier version need "other_change", the stamp of the last change other than new revocations,
-- and triggers named "note_change", which stay.
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
-- The secret before the last rotation, which logs in until then.
ALTER TABLE storage_auth.credentials ADD COLUMN IF NOT EXISTS previous_secret_hash text
  CHECK (previous_secret_hash ~ '^\$(sha256|scrypt)\$');
ALTER TABLE storage_auth.credentials ADD COLUMN IF NOT EXISTS previous_secret_expires_at timestamptz
  CHECK (isfinite(previous_secret_expires_at) AND previous_secret_expires_at < '10000-01-01 00:00:00+00');
-- The number of the revision that changed the row last.
ALTER TABLE storage_auth.credentials ADD COLUMN IF NOT EXISTS changed bigint NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS credentials_changed ON storage_auth.credentials (changed);
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

-- The issuer of the token with this jti. Without it, the tokens of all issuers with this jti are revoked.
ALTER TABLE storage_auth.revocations ADD COLUMN IF NOT EXISTS issuer text
  CHECK (issuer IS NULL OR jti IS NOT NULL AND char_length(issuer) BETWEEN 1 AND 1024);
-- The account whose client has ended the token or link. Null: an operator revoked it.
ALTER TABLE storage_auth.revocations ADD COLUMN IF NOT EXISTS ended_by text;
-- A token that is ended twice is one row.
CREATE UNIQUE INDEX IF NOT EXISTS revocations_token
  ON storage_auth.revocations (storage_auth.name_key(jti, issuer)) WHERE issuer IS NOT NULL;
CREATE INDEX IF NOT EXISTS revocations_ended_by
  ON storage_auth.revocations (storage_auth.name_key(ended_by, '')) WHERE ended_by IS NOT NULL;

CREATE TABLE IF NOT EXISTS storage_auth.history (
  number bigint PRIMARY KEY,
  stamp uuid NOT NULL
);
CREATE TABLE IF NOT EXISTS storage_auth.removed_revocations (
  number bigint NOT NULL,
  id bigint NOT NULL,
  jti text,
  issuer text,
  account_id text,
  access_key text,
  issued_before timestamptz
);
CREATE INDEX IF NOT EXISTS removed_revocations_number ON storage_auth.removed_revocations (number);
CREATE TABLE IF NOT EXISTS storage_auth.removed_credentials (
  number bigint NOT NULL,
  id bigint NOT NULL,
  account_id text NOT NULL,
  access_key text NOT NULL
);
CREATE INDEX IF NOT EXISTS removed_credentials_number ON storage_auth.removed_credentials (number);

CREATE TABLE IF NOT EXISTS storage_auth.revision (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  number bigint NOT NULL,
  stamp uuid NOT NULL
);
ALTER TABLE storage_auth.revision ADD COLUMN IF NOT EXISTS other_change uuid NOT NULL DEFAULT gen_random_uuid();
ALTER TABLE storage_auth.revision ADD COLUMN IF NOT EXISTS credentials_change uuid NOT NULL DEFAULT gen_random_uuid();
ALTER TABLE storage_auth.revision ADD COLUMN IF NOT EXISTS revocations_reset uuid NOT NULL DEFAULT gen_random_uuid();
ALTER TABLE storage_auth.revision ADD COLUMN IF NOT EXISTS credentials_reset uuid NOT NULL DEFAULT gen_random_uuid();
INSERT INTO storage_auth.revision (number, stamp) VALUES (1, gen_random_uuid())
  ON CONFLICT (singleton) DO UPDATE SET stamp = gen_random_uuid(), other_change = gen_random_uuid(),
    credentials_change = gen_random_uuid(), credentials_reset = gen_random_uuid(), revocations_reset = gen_random_uuid();
DELETE FROM storage_auth.history;
INSERT INTO storage_auth.history (number, stamp) SELECT number, stamp FROM storage_auth.revision;

-- Runs as the owner. A role that changes credentials thus needs no right to the revision.
-- A role that adds revocations needs no right to remove them.
CREATE OR REPLACE FUNCTION storage_auth.record_change() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
DECLARE
  new_stamp uuid := gen_random_uuid();
  new_number bigint;
  -- At depth 2, the change is the DELETE below.
  only_adds boolean := TG_TABLE_NAME = 'revocations'
    AND (TG_OP = 'INSERT' OR (TG_OP = 'DELETE' AND pg_trigger_depth() > 1));
  is_reset boolean := TG_TABLE_NAME = 'revocations' AND TG_OP IN ('UPDATE', 'TRUNCATE');
  is_credentials_reset boolean := TG_TABLE_NAME = 'credentials' AND TG_OP = 'TRUNCATE';
BEGIN
  UPDATE storage_auth.revision SET number = number + 1, stamp = new_stamp,
    other_change = CASE WHEN only_adds THEN other_change ELSE new_stamp END,
    credentials_change = CASE WHEN TG_TABLE_NAME = 'credentials' THEN new_stamp ELSE credentials_change END,
    credentials_reset = CASE WHEN is_credentials_reset THEN new_stamp ELSE credentials_reset END,
    revocations_reset = CASE WHEN is_reset THEN new_stamp ELSE revocations_reset END
    RETURNING number INTO new_number;
  -- Without a row of "revision", sidecars report that changes are not recorded. After a restore of "revision" alone,
  -- the number may be there.
  INSERT INTO storage_auth.history (number, stamp) SELECT new_number, new_stamp WHERE new_number IS NOT NULL
    ON CONFLICT (number) DO UPDATE SET stamp = new_stamp;
  DELETE FROM storage_auth.history WHERE number <= new_number - 10000;
  DELETE FROM storage_auth.removed_revocations WHERE number <= new_number - 10000;
  DELETE FROM storage_auth.removed_credentials WHERE number <= new_number - 10000;
  IF TG_TABLE_NAME = 'revocations' AND TG_OP = 'INSERT' THEN
    DELETE FROM storage_auth.revocations WHERE id IN (
      SELECT id FROM storage_auth.revocations WHERE expires_at < now() ORDER BY expires_at LIMIT 1000);
  END IF;
  RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION storage_auth.record_removal() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
BEGIN
  INSERT INTO storage_auth.removed_revocations (number, id, jti, issuer, account_id, access_key, issued_before)
    SELECT revision.number, removed.id, removed.jti, removed.issuer, removed.account_id, removed.access_key, removed.issued_before
    FROM removed, storage_auth.revision;
  RETURN NULL;
END
$$;

-- After "record_change", which has locked and counted the revision. A new name would leave the old one behind.
CREATE OR REPLACE FUNCTION storage_auth.mark_credential() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
BEGIN
  NEW.changed := coalesce((SELECT number FROM storage_auth.revision), 0);
  IF TG_OP = 'UPDATE' AND (NEW.id, NEW.account_id, NEW.access_key) IS DISTINCT FROM (OLD.id, OLD.account_id, OLD.access_key) THEN
    UPDATE storage_auth.revision SET credentials_reset = gen_random_uuid();
  END IF;
  RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION storage_auth.record_credential_removal() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
BEGIN
  INSERT INTO storage_auth.removed_credentials (number, id, account_id, access_key)
    SELECT revision.number, removed.id, removed.account_id, removed.access_key FROM removed, storage_auth.revision;
  RETURN NULL;
END
$$;

-- Leaves a row out if clients of the account have ended 10,000 tokens that are alive, so that none can fill the table.
-- The revision is locked by then, so that concurrent transactions cannot exceed the number together.
CREATE OR REPLACE FUNCTION storage_auth.limit_ended() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
DECLARE
  live bigint := (SELECT count(*) FROM (
    SELECT FROM storage_auth.revocations
    WHERE storage_auth.name_key(ended_by, '') = storage_auth.name_key(NEW.ended_by, '')
      AND ended_by IS NOT NULL AND expires_at >= now() LIMIT 10000) AS of_account);
BEGIN
  IF live >= 10000 THEN RETURN NULL; END IF;
  RETURN NEW;
END
$$;

-- They fire before a change and lock the revision, so that ids of revocations are in the order of commits.
DROP TRIGGER IF EXISTS record_change ON storage_auth.credentials;
CREATE TRIGGER record_change BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON storage_auth.credentials
  FOR EACH STATEMENT EXECUTE FUNCTION storage_auth.record_change();
DROP TRIGGER IF EXISTS mark_credential ON storage_auth.credentials;
CREATE TRIGGER mark_credential BEFORE INSERT OR UPDATE ON storage_auth.credentials
  FOR EACH ROW EXECUTE FUNCTION storage_auth.mark_credential();
DROP TRIGGER IF EXISTS record_credential_removal ON storage_auth.credentials;
CREATE TRIGGER record_credential_removal AFTER DELETE ON storage_auth.credentials REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION storage_auth.record_credential_removal();
DROP TRIGGER IF EXISTS record_change ON storage_auth.revocations;
CREATE TRIGGER record_change BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON storage_auth.revocations
  FOR EACH STATEMENT EXECUTE FUNCTION storage_auth.record_change();
DROP TRIGGER IF EXISTS record_removal ON storage_auth.revocations;
CREATE TRIGGER record_removal AFTER DELETE ON storage_auth.revocations REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION storage_auth.record_removal();
DROP TRIGGER IF EXISTS limit_ended ON storage_auth.revocations;
CREATE TRIGGER limit_ended BEFORE INSERT ON storage_auth.revocations
  FOR EACH ROW WHEN (NEW.ended_by IS NOT NULL) EXECUTE FUNCTION storage_auth.limit_ended();

-- Roles of an earlier version keep their rights: who may read "revision" may read the tables beside it,
-- and who may add a token id may add what belongs to it.
DO $$ DECLARE grantee text; BEGIN
  FOR grantee IN SELECT DISTINCT acl.grantee::regrole::text FROM pg_class, aclexplode(relacl) AS acl
    WHERE oid = 'storage_auth.revision'::regclass AND acl.privilege_type = 'SELECT' AND acl.grantee <> 0
  LOOP EXECUTE format('GRANT SELECT ON storage_auth.history, storage_auth.removed_revocations, storage_auth.removed_credentials TO %s', grantee); END LOOP;
  FOR grantee IN SELECT DISTINCT acl.grantee::regrole::text FROM pg_attribute, aclexplode(attacl) AS acl
    WHERE attrelid = 'storage_auth.revocations'::regclass AND attname = 'jti'
      AND acl.privilege_type = 'INSERT' AND acl.grantee <> 0
  LOOP EXECUTE format('GRANT INSERT (issuer, ended_by) ON storage_auth.revocations TO %s', grantee); END LOOP;
END $$;
COMMIT;
