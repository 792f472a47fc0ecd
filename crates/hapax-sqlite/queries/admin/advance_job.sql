-- Records the progress of a job, in the transaction of its batch.
UPDATE hapax_job SET
    state = CASE WHEN ?6 THEN 'done' ELSE 'running' END,
    partition = ?2,
    position = ?3,
    done = done + ?4,
    next_at = ?7 + ?5,
    failures = 0,
    error = NULL,
    started_at = coalesce(started_at, ?7),
    ended_at = CASE WHEN ?6 THEN ?7 END
WHERE id = ?1
