-- Which destinations nobody carries any more, and since when: retention waits for them no longer than
-- events are kept.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- `epoch` and `written_at` are those of the checkpoint when the destination was found absent: where
-- they differ now, somebody has carried it since. `noted_at` is when it was last found absent.
CREATE TABLE hapax_absence (
    destination TEXT NOT NULL PRIMARY KEY,
    epoch       INTEGER NOT NULL,
    written_at  INTEGER NOT NULL,
    since       INTEGER NOT NULL,
    noted_at    INTEGER NOT NULL
) WITHOUT ROWID;
