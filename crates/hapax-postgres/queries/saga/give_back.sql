-- Releases a saga until it is due again. It is due at once if it has received a signal meanwhile,
-- and never by itself if it waits for a person. The update waits for a transaction that is storing
-- a signal, so that the row counts that signal.
UPDATE hapax.saga SET
    lease_until = NULL,
    waiting_for = CASE WHEN ended_at IS NULL THEN $4::text END,
    wake_at = CASE
        WHEN ended_at IS NOT NULL THEN NULL
        WHEN signals_received > $5::int8 THEN at
        WHEN state = 'running' THEN at + $3::int8 * interval '1 millisecond'
    END
FROM (SELECT date_trunc('milliseconds', coalesce($6::timestamptz, clock_timestamp())) AS at) AS clock
WHERE id = $1::text AND epoch = $2::int8
RETURNING 1
