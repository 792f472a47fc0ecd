-- Deliveries that an operator asked for: the destination's patterns say nothing about those.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

ALTER TABLE hapax.delivery ADD COLUMN asked boolean;
