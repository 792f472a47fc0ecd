-- Relay: destinations and where they start, their checkpoints and leases, and heartbeats of relays.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Destinations that were ever opened, and why one is disabled.
CREATE TABLE hapax_destination (
    name            TEXT NOT NULL PRIMARY KEY,
    first_opened_at INTEGER NOT NULL,
    opened_at       INTEGER NOT NULL,
    disabled_at     INTEGER,
    disabled_reason TEXT
) WITHOUT ROWID;

-- The position after which the partitions of a destination start, whenever they are opened first. A
-- row is written before the first partition is opened, and is never changed.
CREATE TABLE hapax_start (
    destination TEXT NOT NULL PRIMARY KEY,
    frontier    INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Checkpoint and owner of each destination, in one row that is updated. `settled` and `offered` are
-- ranges, such as "5-9,12". Without an owner, `node` is null. `settlement` is the number of the
-- last settlement of the epoch.
CREATE TABLE hapax_checkpoint (
    destination TEXT NOT NULL PRIMARY KEY REFERENCES hapax_destination (name),
    epoch       INTEGER NOT NULL,
    frontier    INTEGER NOT NULL,
    settled     TEXT NOT NULL,
    offered     TEXT NOT NULL,
    written_at  INTEGER NOT NULL,
    node        TEXT,
    taken_at    INTEGER NOT NULL DEFAULT 0,
    settlement  INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- The last heartbeat of each relay. `knows` holds the destinations that it is configured for, one
-- per line.
CREATE TABLE hapax_node (
    name    TEXT NOT NULL PRIMARY KEY,
    seen_at INTEGER NOT NULL,
    destinations   TEXT
) WITHOUT ROWID;

-- Absent destinations, which no relay serves; retention stops waiting for them after the retention
-- of events. `epoch` and `written_at` are those of the checkpoint when the absence began: if they
-- have changed, a relay has served the destination since. `noted_at` is the last confirmation.
CREATE TABLE hapax_absence (
    destination TEXT NOT NULL PRIMARY KEY,
    epoch       INTEGER NOT NULL,
    written_at  INTEGER NOT NULL,
    since       INTEGER NOT NULL,
    noted_at    INTEGER NOT NULL
) WITHOUT ROWID;
