-- Whose each destination is, which nodes live, and first attempts that arrived.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- Nobody holds what has no node.
ALTER TABLE hapax_checkpoint ADD COLUMN node TEXT;
ALTER TABLE hapax_checkpoint ADD COLUMN taken_at INTEGER NOT NULL DEFAULT 0;

-- When each node gave its last sign of life.
CREATE TABLE hapax_node (
    name    TEXT NOT NULL PRIMARY KEY,
    seen_at INTEGER NOT NULL
) WITHOUT ROWID;

-- First attempts that arrived, as ranges such as "5-9,12": a row for those that were settled
-- together and lie within 8,192 positions of each other, so that who looks for one knows where it
-- can be.
CREATE TABLE hapax_arrival (
    part        TEXT NOT NULL,
    positions   TEXT NOT NULL,
    first       INTEGER NOT NULL,
    last        INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    status      INTEGER,
    PRIMARY KEY (first, part, started_at)
) WITHOUT ROWID;
