-- Records the progress of a job, in the transaction of its batch.
UPDATE hapax.job SET
    state = CASE WHEN $6::bool THEN 'done' ELSE 'running' END,
    partition = $2::text,
    position = $3::int8,
    done = done + $4::int8,
    next_at = clock_timestamp() + $5::int8 * interval '1 millisecond',
    failures = 0,
    error = NULL,
    started_at = coalesce(started_at, clock_timestamp()),
    ended_at = CASE WHEN $6::bool THEN clock_timestamp() END
WHERE id = $1::int8
