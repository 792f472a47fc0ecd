-- Records that a batch of a job failed, and gives the job up after too many failures.
UPDATE hapax.job SET
    failures = failures + 1,
    error = $2::text,
    next_at = clock_timestamp() + $3::int8 * interval '1 millisecond',
    state = CASE WHEN failures + 1 >= $4::int4 THEN 'failed' ELSE 'running' END,
    ended_at = CASE WHEN failures + 1 >= $4::int4 THEN clock_timestamp() END
WHERE id = $1::int8 AND state IN ('waiting', 'running')
