-- Records how far a feed has read, in the transaction that appends the events. Divides by zero if
-- another feeder has taken over, or if the position is not the one from which this feeder went on,
-- as after a restore of this database: nothing of this transaction is committed then.
-- Only here: the SQLite store has no feeds.
WITH moved AS (
    UPDATE hapax.feed
    SET confirmed_lsn = $3::pg_lsn, updated_at = $4::timestamptz
    WHERE name = $1::text AND epoch = $2::int8 AND gap IS NULL AND confirmed_lsn = $5::pg_lsn
    RETURNING 1
)
SELECT 1 / count(*)::int4 AS moved FROM moved
