-- Returns the health of an endpoint ($2) of a tenant ($1): its attempts since a time ($3) that say something
-- about it, at most $4 of them, and up to $5 deliveries that wait or have failed.
WITH looked AS MATERIALIZED (
    SELECT duration_ms, outcome
    FROM hapax.endpoint_attempt
    WHERE tenant = $1::text AND endpoint = $2::text AND started_at >= $3::timestamptz
      AND outcome NOT IN ('dropped', 'rejected')
    ORDER BY started_at DESC, id DESC
    LIMIT $4::int8
), waits AS MATERIALIZED (
    SELECT created_at
    FROM hapax.endpoint_delivery
    WHERE tenant = $1::text AND endpoint = $2::text AND state = 'waiting'
    LIMIT $5::int8
), failed AS MATERIALIZED (
    SELECT id
    FROM hapax.endpoint_delivery
    WHERE tenant = $1::text AND endpoint = $2::text AND state = 'failed'
    LIMIT $5::int8
)
SELECT count(*) AS attempts,
       count(*) FILTER (WHERE outcome = 'delivered') AS delivered,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY duration_ms) AS p95_ms,
       (SELECT count(*) FROM waits) AS waiting,
       (SELECT min(created_at) FROM waits) AS waiting_since,
       (SELECT count(*) FROM failed) AS failed
FROM looked
