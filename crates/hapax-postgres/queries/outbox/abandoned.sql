-- Lists the partitions that no relay has owned for $1 milliseconds; the outbox no longer waits for
-- them. The current time is that of the database's clock, unless a time ($2) is given.
-- Only here: the SQLite store has one process, which knows its destinations.
SELECT partition
FROM hapax.abandoned_partitions($1::int8, $2::timestamptz) AS gone (partition)
ORDER BY partition COLLATE "C"
