-- Cancels a job that has not ended. What it has already done is not undone.
UPDATE hapax_job SET
    state = 'cancelled',
    ended_at = ?2
WHERE id = ?1 AND state IN ('waiting', 'running')
