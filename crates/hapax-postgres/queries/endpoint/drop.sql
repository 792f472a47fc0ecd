-- Ends deliveries of endpoints for which more than $1 wait: the oldest ones of each, at most $2 in all,
-- with the reason in $3. Each has a line in the log of attempts. Relays that do this at the same time
-- choose the same rows, and the second one finds them ended. The rows are locked in the order of their ids, as
-- where deliveries are settled. Returns them, with the number of attempts that were made.
WITH RECURSIVE now AS MATERIALIZED (
    SELECT coalesce($4::timestamptz, clock_timestamp()) AS at
), scanned (endpoint) AS (
    (
        SELECT delivery.endpoint
        FROM hapax.endpoint_delivery AS delivery
        WHERE delivery.state = 'waiting'
        ORDER BY delivery.endpoint
        LIMIT 1
    )
    UNION ALL
    SELECT next.endpoint
    FROM scanned
    CROSS JOIN LATERAL (
        SELECT delivery.endpoint
        FROM hapax.endpoint_delivery AS delivery
        WHERE delivery.state = 'waiting' AND delivery.endpoint > scanned.endpoint
        ORDER BY delivery.endpoint
        LIMIT 1
    ) AS next
), excess AS MATERIALIZED (
    SELECT scanned.endpoint, counted.number - $1::int8 AS number
    FROM scanned
    CROSS JOIN LATERAL (
        SELECT count(*) AS number
        FROM (
            SELECT 1
            FROM hapax.endpoint_delivery AS delivery
            WHERE delivery.state = 'waiting' AND delivery.endpoint = scanned.endpoint
            LIMIT $1::int8 + $2::int8
        ) AS waits
    ) AS counted
    WHERE counted.number > $1::int8
), chosen AS MATERIALIZED (
    SELECT oldest.id
    FROM excess
    CROSS JOIN LATERAL (
        SELECT delivery.id
        FROM hapax.endpoint_delivery AS delivery
        WHERE delivery.state = 'waiting' AND delivery.endpoint = excess.endpoint
        ORDER BY delivery.position, delivery.id
        LIMIT excess.number
    ) AS oldest
    LIMIT $2::int8
), held AS MATERIALIZED (
    SELECT delivery.id
    FROM chosen
    JOIN hapax.endpoint_delivery AS delivery ON delivery.id = chosen.id
    WHERE delivery.state = 'waiting'
    ORDER BY delivery.id
    FOR UPDATE OF delivery
), dropped AS (
    UPDATE hapax.endpoint_delivery AS delivery
    SET state = 'failed',
        attempt = delivery.attempt + 1,
        ended_at = now.at,
        last_error = $3::text
    FROM held, now
    WHERE delivery.id = held.id AND delivery.state = 'waiting'
    RETURNING delivery.endpoint, delivery.tenant, delivery.position, delivery.event_id, delivery.type,
              delivery.attempt, now.at
), logged AS (
    INSERT INTO hapax.endpoint_attempt
        (endpoint, tenant, position, event_id, type, number, started_at, duration_ms, outcome, error,
         request, response, is_encrypted)
    SELECT endpoint, tenant, position, event_id, type, attempt, at, 0, 'dropped', $3::text, ''::bytea,
           ''::bytea, false
    FROM dropped
    ON CONFLICT (endpoint, event_id, number, started_at) DO NOTHING
)
SELECT endpoint, tenant, event_id::text AS event_id, type, attempt - 1 AS attempt,
       $3::text AS last_error, true AS has_failed
FROM dropped
ORDER BY endpoint, position
