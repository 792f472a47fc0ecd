-- Whose attempt was cut off: a relay that shows later that it lived is not one that its event killed.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- Of an attempt that was interrupted as another node took the part: the node that had it, and when it
-- had last shown then that it lives.
ALTER TABLE hapax_attempt ADD COLUMN owner TEXT;
ALTER TABLE hapax_attempt ADD COLUMN owner_seen_at INTEGER;
