-- Writes how a saga stands. One that has ended is due no more; one that needs a person stays due
-- until it is given back, so that what it was told meanwhile is not lost with its worker.
UPDATE hapax.saga SET
    state = $3::text,
    undoing = $4::boolean,
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
