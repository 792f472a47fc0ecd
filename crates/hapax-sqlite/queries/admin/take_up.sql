-- Makes the last removal (?2) of a destination continue after it was given up.
UPDATE hapax_job SET
    state = 'waiting',
    next_at = ?3,
    failures = 0,
    error = NULL,
    ended_at = NULL
WHERE id = (
        SELECT max(id) FROM hapax_job WHERE destination = ?1 AND kind = ?2
    )
    AND state = 'failed'
RETURNING id
