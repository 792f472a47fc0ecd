-- Ends a job that has not ended; what it did stays done.
-- Only here: the other store has one process, and nobody beside it who operates.
UPDATE hapax.job SET
    state = 'cancelled',
    ended_at = clock_timestamp()
WHERE id = $1::int8 AND state IN ('waiting', 'running')
RETURNING 1
