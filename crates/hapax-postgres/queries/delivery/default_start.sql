-- Records that a destination starts with the first event, if nothing else was recorded before its
-- first partition is opened, so that its other partitions start there too.
-- Only here: the single writer of SQLite sees that a partition exists.
INSERT INTO hapax.start (destination, frontier)
VALUES (split_part($1::text, '/', 1), 0)
ON CONFLICT (destination) DO NOTHING
