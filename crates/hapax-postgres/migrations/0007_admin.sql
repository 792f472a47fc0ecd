-- Administration: destinations declared at run time, jobs, and the audit log.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Destinations declared by operators. `spec` is JSON without secrets; `sealed` holds the secrets,
-- encrypted by the declaring process. A row without `spec` concerns a destination of a
-- configuration file and records that it is paused or removed. Every change draws a new version
-- under one lock, so that versions are committed in order and a reader that asks for all versions
-- after the highest it has seen misses none.
CREATE SEQUENCE hapax.declaration_version AS bigint CACHE 1;
CREATE TABLE hapax.declaration (
    name       text NOT NULL PRIMARY KEY,
    spec       text,
    sealed     bytea,
    version    bigint NOT NULL,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    paused_at  timestamptz,
    paused_by  text,
    removed_at timestamptz,
    purged_at  timestamptz
);
CREATE UNIQUE INDEX declaration_changes ON hapax.declaration (version);

-- A removed destination cannot be opened: a relay that does not know of the removal would start
-- again at the first event of the outbox.
CREATE FUNCTION hapax.refuse_removed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (
        SELECT 1
        FROM hapax.declaration
        WHERE name = split_part(NEW.name, '/', 1) AND removed_at IS NOT NULL
    ) THEN
        RAISE 'destination % was removed', split_part(NEW.name, '/', 1) USING
            ERRCODE = 'HX005',
            HINT = 'Take it out of the configuration, or create it anew.';
    END IF;
    RETURN NEW;
END
$$;
REVOKE ALL ON FUNCTION hapax.refuse_removed() FROM PUBLIC;
CREATE TRIGGER destination_refuses_removed
    BEFORE INSERT ON hapax.destination
    FOR EACH ROW EXECUTE FUNCTION hapax.refuse_removed();

-- Bulk jobs. Each batch is one transaction, which contains both the effects and the progress of the
-- job. A worker holds a lock on the row, which the database releases if the worker dies.
CREATE TABLE hapax.job (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind        text NOT NULL,
    destination text NOT NULL,
    tenant      text,
    arguments   text NOT NULL,
    state       text NOT NULL CHECK (state IN
                    ('waiting', 'running', 'done', 'cancelled', 'failed')),
    partition        text NOT NULL DEFAULT '',
    position    bigint NOT NULL DEFAULT 0,
    total       bigint,
    done        bigint NOT NULL DEFAULT 0,
    per_second  integer,
    next_at     timestamptz NOT NULL,
    failures    integer NOT NULL DEFAULT 0,
    error       text,
    actor       text NOT NULL,
    request_key text,
    created_at  timestamptz NOT NULL,
    started_at  timestamptz,
    ended_at    timestamptz
);
CREATE UNIQUE INDEX job_request ON hapax.job (actor, request_key)
    WHERE request_key IS NOT NULL;
CREATE INDEX job_open ON hapax.job (next_at, id)
    WHERE state IN ('waiting', 'running');

-- Audit log: who did what, when, and with which outcome; written in the transaction of the action.
CREATE TABLE hapax.audit_log (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor   text NOT NULL,
    tenant  text,
    action  text NOT NULL,
    object  text NOT NULL,
    detail  text NOT NULL,
    outcome text NOT NULL
);
CREATE FUNCTION hapax.refuse_rewriting() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE 'the audit log is append-only' USING ERRCODE = 'HX006';
END
$$;
CREATE TRIGGER audit_log_is_appended_to
    BEFORE UPDATE OR DELETE OR TRUNCATE ON hapax.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse_rewriting();
