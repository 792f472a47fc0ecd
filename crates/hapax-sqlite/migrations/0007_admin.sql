-- Administration: destinations declared or paused at run time, jobs, the audit log, and what
-- operators look up.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Destinations declared by operators. `spec` is JSON without secrets; `sealed` holds the secrets,
-- encrypted by the declaring process. A row without `spec` concerns a destination of the service or
-- of a configuration file and records that it is paused or removed. Every change takes the next
-- version, so a reader that asks for all versions after the highest it has seen misses none: there
-- is one writing transaction at a time, and no row is ever deleted.
CREATE TABLE hapax_declaration (
    name       TEXT NOT NULL PRIMARY KEY,
    spec       TEXT,
    sealed     BLOB,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    changed_by TEXT NOT NULL,
    paused_at  INTEGER,
    paused_by  TEXT,
    removed_at INTEGER,
    purged_at  INTEGER
);
CREATE UNIQUE INDEX hapax_declaration_version ON hapax_declaration (version);

-- A removed destination cannot be opened: a relay that does not know of the removal would start
-- again at the first event of the outbox.
CREATE TRIGGER hapax_destination_refuses_removed BEFORE INSERT ON hapax_destination
WHEN EXISTS (
    SELECT 1
    FROM hapax_declaration
    WHERE name = substr(NEW.name, 1, instr(NEW.name || '/', '/') - 1) AND removed_at IS NOT NULL
)
BEGIN
    SELECT RAISE(ABORT, 'the destination was removed: take it out of the configuration, or create it anew');
END;

-- The last epoch of each partition of removed destinations. If the destination is created again, its
-- epochs continue, so that a settlement of a former owner is fenced.
CREATE TABLE hapax_former_epoch (
    partition TEXT NOT NULL PRIMARY KEY,
    epoch     INTEGER NOT NULL
) WITHOUT ROWID;

-- Bulk jobs. Each batch is one transaction, which contains both the effects and the progress of the
-- job.
CREATE TABLE hapax_job (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    kind        TEXT NOT NULL,
    destination TEXT NOT NULL,
    tenant      TEXT,
    arguments   TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN
                    ('waiting', 'running', 'done', 'cancelled', 'failed')),
    partition   TEXT NOT NULL DEFAULT '',
    position    INTEGER NOT NULL DEFAULT 0,
    total       INTEGER,
    done        INTEGER NOT NULL DEFAULT 0,
    per_second  INTEGER,
    next_at     INTEGER NOT NULL,
    failures    INTEGER NOT NULL DEFAULT 0,
    error       TEXT,
    actor       TEXT NOT NULL,
    request_key TEXT,
    created_at  INTEGER NOT NULL,
    started_at  INTEGER,
    ended_at    INTEGER
);
CREATE UNIQUE INDEX hapax_job_request ON hapax_job (actor, request_key)
    WHERE request_key IS NOT NULL;
CREATE INDEX hapax_job_open ON hapax_job (next_at, id)
    WHERE state IN ('waiting', 'running');

-- Audit log: who did what, when, and with which outcome; written in the transaction of the action.
CREATE TABLE hapax_audit_log (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    tenant  TEXT,
    action  TEXT NOT NULL,
    object  TEXT NOT NULL,
    detail  TEXT NOT NULL,
    outcome TEXT NOT NULL
);
CREATE TRIGGER hapax_audit_log_is_not_updated BEFORE UPDATE ON hapax_audit_log
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER hapax_audit_log_is_not_deleted BEFORE DELETE ON hapax_audit_log
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;

-- Deliveries that operators have changed: the payload and headers that are offered in place of those
-- of the event, and whether an operator asked for the delivery.
ALTER TABLE hapax_delivery ADD COLUMN payload TEXT;
ALTER TABLE hapax_delivery ADD COLUMN headers TEXT;
ALTER TABLE hapax_delivery ADD COLUMN manual INTEGER;

-- Dead letters are numbered in the order in which they died, so that a job processes exactly those
-- that were dead when they were counted, even if the clock was set. A letter that dies again gets a
-- new number. Letters of earlier versions have none, and died before all others.
ALTER TABLE hapax_delivery ADD COLUMN death INTEGER;
CREATE TABLE hapax_death (
    last INTEGER NOT NULL
);
INSERT INTO hapax_death (last) VALUES (0);
CREATE TRIGGER hapax_delivery_dies_at_once AFTER INSERT ON hapax_delivery WHEN NEW.state = 'dead'
BEGIN
    UPDATE hapax_death SET last = last + 1;
    UPDATE hapax_delivery SET death = (SELECT last FROM hapax_death)
    WHERE destination = NEW.destination AND position = NEW.position;
END;
CREATE TRIGGER hapax_delivery_dies AFTER UPDATE OF state ON hapax_delivery
WHEN NEW.state = 'dead' AND OLD.state <> 'dead'
BEGIN
    UPDATE hapax_death SET last = last + 1;
    UPDATE hapax_delivery SET death = (SELECT last FROM hapax_death)
    WHERE destination = NEW.destination AND position = NEW.position;
END;

-- `xid` is the number of the transaction that wrote an event or last wrote a key: the position of
-- its first event or, without events, a negative random number. Events and keys of earlier versions
-- have none.
ALTER TABLE hapax_outbox_event ADD COLUMN xid INTEGER;

-- Keys in another order, as in the PostgreSQL store: operators look keys up without their tenant or
-- operation, and by their beginning. A further index would cost more with every claim than this
-- copy costs once. What can be long comes last, so that a list does not read it.
ALTER TABLE hapax_idempotency_key RENAME TO hapax_idempotency_key_old;
DROP INDEX hapax_idempotency_key_expires;
DROP INDEX hapax_idempotency_key_lapses;
CREATE TABLE hapax_idempotency_key (
    tenant           TEXT NOT NULL,
    operation        TEXT NOT NULL,
    key              TEXT NOT NULL,
    fingerprint      BLOB NOT NULL,
    state            TEXT NOT NULL CHECK (state IN ('in_progress', 'completed', 'failed', 'tombstone')),
    epoch            INTEGER NOT NULL,
    lease_until      INTEGER,
    recovery_point   TEXT,
    response_status  INTEGER,
    resource_id      TEXT,
    on_expired       TEXT NOT NULL CHECK (on_expired IN ('new', 'gone')),
    created_at       INTEGER NOT NULL,
    completed_at     INTEGER,
    expires_at       INTEGER NOT NULL,
    xid              INTEGER,
    response_headers BLOB,
    response_body    BLOB,
    request          BLOB,
    UNIQUE (key, operation, tenant)
);
INSERT INTO hapax_idempotency_key
    (tenant, operation, key, fingerprint, state, epoch, lease_until, recovery_point, response_status,
     response_headers, response_body, resource_id, on_expired, created_at, completed_at, expires_at,
     request)
SELECT tenant, operation, key, fingerprint, state, epoch, lease_until, recovery_point,
       response_status, response_headers, response_body, resource_id, on_expired, created_at,
       completed_at, expires_at, request
FROM hapax_idempotency_key_old
ORDER BY created_at, rowid;
DROP TABLE hapax_idempotency_key_old;
CREATE INDEX hapax_idempotency_key_expires ON hapax_idempotency_key (expires_at);
CREATE INDEX hapax_idempotency_key_lapses ON hapax_idempotency_key (lease_until)
    WHERE state = 'in_progress';
-- For lists of keys, newest claim first, and for keys claimed around the time of an event. Claims
-- arrive in the order of time, so the index grows only at its end.
CREATE INDEX hapax_idempotency_key_created ON hapax_idempotency_key (created_at);

-- For the deliveries of the last minute.
CREATE INDEX hapax_arrival_started ON hapax_arrival (started_at);

-- For lists of sagas by state, of all tenants and of one. A query of one tenant reads no rows of
-- others and cannot infer them from where its page ends.
CREATE INDEX hapax_saga_state ON hapax_saga (state, id);
CREATE INDEX hapax_saga_tenant ON hapax_saga (tenant, state, id) WHERE tenant IS NOT NULL;
-- Sagas that were started around the time of a request.
CREATE INDEX hapax_saga_created ON hapax_saga (created_at);
