-- Makes a saga that has not ended due, because it receives a signal. The update locks the row, so
-- that signals have one order.
UPDATE hapax.saga SET
    wake_at = least(wake_at, at)
FROM (SELECT date_trunc('milliseconds', coalesce($2::timestamptz, clock_timestamp())) AS at) AS clock
WHERE id = $1::text AND ended_at IS NULL
RETURNING 1
