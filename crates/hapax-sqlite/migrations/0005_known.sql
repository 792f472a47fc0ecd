-- What relays know: a part falls to who knows its destination.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- The destinations that a node carries some part of, or would, a line each; of an older version
-- there is nothing.
ALTER TABLE hapax_node ADD COLUMN knows TEXT;
