-- Records that a batch of a job failed, and gives the job up after too many failures.
UPDATE hapax_job SET
    failures = failures + 1,
    error = ?2,
    next_at = ?5 + ?3,
    state = CASE WHEN failures + 1 >= ?4 THEN 'failed' ELSE 'running' END,
    ended_at = CASE WHEN failures + 1 >= ?4 THEN ?5 END
WHERE id = ?1 AND state IN ('waiting', 'running')
