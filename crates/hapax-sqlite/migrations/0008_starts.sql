-- Starts: where destinations start in the outbox.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- The position after which the partitions of a destination start, whenever they are opened first. A
-- row is written before the first partition is opened, and is never changed.
CREATE TABLE hapax_start (
    destination TEXT NOT NULL PRIMARY KEY,
    frontier    INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL
) WITHOUT ROWID;
