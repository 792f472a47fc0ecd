-- Makes the last removal ($2) of a destination continue after it was given up.
UPDATE hapax.job SET
    state = 'waiting',
    next_at = clock_timestamp(),
    failures = 0,
    error = NULL,
    ended_at = NULL
WHERE id = (
        SELECT max(id) FROM hapax.job WHERE destination = $1::text AND kind = $2::text
    )
    AND state = 'failed'
RETURNING id
