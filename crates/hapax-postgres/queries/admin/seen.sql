-- Returns the visible transactions, the cluster that counts them, in the format of a frontier (see
-- hapax.is_read_in), and the current time. A standby that is promoted continues the count, so the
-- timeline is not included.
-- Only here: the SQLite store has ids in commit order and numbers dead letters.
SELECT pg_current_snapshot()::text || ' - ' || split_part(hapax.history(), '/', 1),
       clock_timestamp()
