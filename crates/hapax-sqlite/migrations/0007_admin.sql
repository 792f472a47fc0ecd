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

-- The last epoch of each partition of removed destinations. If the destination is created anew, its
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
-- that were dead when they were counted, whatever the clock shows. A letter that dies again gets a
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
