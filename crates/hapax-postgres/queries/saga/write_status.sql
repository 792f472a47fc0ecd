-- Writes the state of a saga. A saga that has ended is not due any more. One that needs attention
-- stays due until its owner gives it back, so that a signal that arrives meanwhile is not lost if
-- the owner dies.
UPDATE hapax.saga SET
    state = $3::text,
    compensating = $4::boolean,
    reason_code = $5::text,
    reason_detail = $6::text,
    deadline_at = $7::timestamptz,
    wake_at = CASE
        WHEN $3::text IN ('running', 'needs_attention') THEN coalesce(wake_at, at)
    END,
    waiting_for = CASE WHEN $3::text = 'running' THEN waiting_for END,
    ended_at = CASE WHEN $3::text IN ('completed', 'failed') THEN at END
FROM (SELECT date_trunc('milliseconds', coalesce($8::timestamptz, clock_timestamp())) AS at) AS clock
WHERE id = $1::text AND epoch = $2::int8
RETURNING 1
