-- Cancels a job that has not ended. What it has already done is not undone.
UPDATE hapax.job SET
    state = 'cancelled',
    ended_at = clock_timestamp()
WHERE id = $1::int8 AND state IN ('waiting', 'running')
RETURNING 1
