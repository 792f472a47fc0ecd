-- Returns the health of an endpoint (?2) of a tenant (?1): its attempts since a time (?3) that say something
-- about it, at most ?4 of them, and up to ?5 deliveries that wait or have failed.
WITH looked AS MATERIALIZED (
    SELECT duration_ms, outcome
    FROM hapax_endpoint_attempt
    WHERE tenant = ?1 AND endpoint = ?2 AND started_at >= ?3
      AND outcome NOT IN ('dropped', 'rejected')
    ORDER BY started_at DESC, id DESC
    LIMIT ?4
), waits AS MATERIALIZED (
    SELECT created_at
    FROM hapax_endpoint_delivery
    WHERE tenant = ?1 AND endpoint = ?2 AND state = 'waiting'
    LIMIT ?5
), failed AS MATERIALIZED (
    SELECT id
    FROM hapax_endpoint_delivery
    WHERE tenant = ?1 AND endpoint = ?2 AND state = 'failed'
    LIMIT ?5
)
SELECT count(*) AS attempts,
       count(*) FILTER (WHERE outcome = 'delivered') AS delivered,
       (SELECT duration_ms FROM looked ORDER BY duration_ms DESC
        LIMIT 1 OFFSET (SELECT count(*) / 20 FROM looked)) AS p95_ms,
       (SELECT count(*) FROM waits) AS waiting,
       (SELECT min(created_at) FROM waits) AS waiting_since,
       (SELECT count(*) FROM failed) AS failed
FROM looked
