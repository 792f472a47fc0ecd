-- Whose attempt was cut off: a relay that shows later that it lived is not one that its event killed.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- Of an attempt that was interrupted as another node took the part: the node that had it, and the
-- number of the last sign of life that anybody had given then.
ALTER TABLE hapax.attempt
    ADD COLUMN owner      text,
    ADD COLUMN owner_sign bigint;
