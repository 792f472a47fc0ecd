-- A settlement whose answer was lost is known when it comes again.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- The number of the last settlement of the epoch that had one.
ALTER TABLE hapax_checkpoint ADD COLUMN settlement INTEGER NOT NULL DEFAULT 0;
