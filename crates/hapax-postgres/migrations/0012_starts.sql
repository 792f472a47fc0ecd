-- Starts: where destinations start in the outbox.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- The frontier at which the partitions of a destination start, whenever they are opened first. The
-- snapshot says which events up to the frontier are skipped: those that were visible in it. Without
-- a snapshot the destination starts with the first event. A row is written before the first
-- partition is opened, or with it, and is never changed.
CREATE TABLE hapax.start (
    destination text NOT NULL PRIMARY KEY,
    frontier    bigint NOT NULL,
    snapshot    text,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
