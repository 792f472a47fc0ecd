-- Finds the partitions that prevent a rotation although the current segment was started more than
-- $1 milliseconds ago: they have not read the next segment, which was closed more than $2
-- milliseconds ago. The current time is that of the database's clock, unless a time ($3) is given.
-- Only here: the SQLite store has no segments.
SELECT segment, partition
FROM hapax.lagging($1::int8, $2::int8, $3::timestamptz)
