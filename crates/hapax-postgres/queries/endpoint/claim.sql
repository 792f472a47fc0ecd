-- Claims deliveries that are due, of up to $2 endpoints after an id ($1): up to $3 of each, one of those
-- in $4 and of slowed ones, none of those in $5 or of one whose pause is not over, at most $6 in all. An
-- endpoint that catches up gets the delivery with its oldest event alone, once that is due or was not
-- tried since the endpoint was enabled. A claimed delivery is due again after $7 milliseconds. The search
-- goes from one endpoint that waits to the next along the index, so an endpoint with many deliveries costs
-- no more than one with few. Endpoints are in the order of their ids also where the limit is reached, so
-- that the next search can begin after the last one. Each row contains the last endpoint of the search and
-- how many there were; without a delivery one row contains only that.
-- Only here: the SQLite store claims in several statements, because it has no round trips.
WITH RECURSIVE now AS MATERIALIZED (
    SELECT coalesce($8::timestamptz, clock_timestamp()) AS at
), scanned (endpoint, place) AS (
    (
        SELECT delivery.endpoint, 1
        FROM hapax.endpoint_delivery AS delivery
        WHERE delivery.state = 'waiting' AND delivery.endpoint > $1::text
        ORDER BY delivery.endpoint
        LIMIT 1
    )
    UNION ALL
    SELECT next.endpoint, scanned.place + 1
    FROM scanned
    CROSS JOIN LATERAL (
        SELECT delivery.endpoint
        FROM hapax.endpoint_delivery AS delivery
        WHERE delivery.state = 'waiting' AND delivery.endpoint > scanned.endpoint
        ORDER BY delivery.endpoint
        LIMIT 1
    ) AS next
    WHERE scanned.place < $2::int4
), asked AS MATERIALIZED (
    SELECT scanned.endpoint, endpoint.slow_until IS NOT NULL AS is_slowed, endpoint.catch_up_at
    FROM now, scanned
    JOIN hapax.endpoint AS endpoint ON endpoint.id = scanned.endpoint
    WHERE endpoint.deleted_at IS NULL
      AND endpoint.disabled_reason IS NULL
      AND (endpoint.slow_until IS NULL OR endpoint.slow_until <= now.at)
      AND scanned.endpoint <> ALL ($5::text[])
), due AS MATERIALIZED (
    SELECT one.id, asked.endpoint
    FROM (
        SELECT endpoint, is_slowed FROM asked WHERE catch_up_at IS NULL ORDER BY endpoint
    ) AS asked
    CROSS JOIN LATERAL (
        SELECT delivery.id
        FROM hapax.endpoint_delivery AS delivery
        WHERE delivery.state = 'waiting'
          AND delivery.endpoint = asked.endpoint
          AND delivery.next_at <= (SELECT now.at FROM now)
        ORDER BY delivery.next_at, delivery.id
        LIMIT CASE WHEN asked.is_slowed OR asked.endpoint = ANY ($4::text[]) THEN 1 ELSE $3::int8 END
        FOR UPDATE SKIP LOCKED
    ) AS one
    LIMIT $6::int8
), oldest AS MATERIALIZED (
    SELECT delivery.id, asked.endpoint
    FROM now
    CROSS JOIN asked
    CROSS JOIN LATERAL (
        SELECT head.id
        FROM hapax.endpoint_delivery AS head
        WHERE head.state = 'waiting' AND head.endpoint = asked.endpoint
        ORDER BY head.position, head.id
        LIMIT 1
    ) AS head
    JOIN hapax.endpoint_delivery AS delivery ON delivery.id = head.id
    WHERE asked.catch_up_at IS NOT NULL
      AND delivery.state = 'waiting'
      AND (
          delivery.next_at <= now.at
          OR delivery.created_at < asked.catch_up_at
              AND coalesce(delivery.tried_at < asked.catch_up_at, true)
      )
    ORDER BY asked.endpoint
    LIMIT $6::int8
    FOR UPDATE OF delivery SKIP LOCKED
), chosen AS MATERIALIZED (
    SELECT found.id
    FROM (
        SELECT due.id, due.endpoint FROM due
        UNION ALL
        SELECT oldest.id, oldest.endpoint FROM oldest
    ) AS found
    ORDER BY found.endpoint
    LIMIT $6::int8
), claimed AS (
    UPDATE hapax.endpoint_delivery AS delivery
    SET attempt = delivery.attempt + 1,
        tried_at = now.at,
        next_at = now.at + $7::int8 * interval '1 millisecond'
    FROM chosen, now
    WHERE delivery.id = chosen.id
    RETURNING delivery.endpoint, delivery.tenant, delivery.position, delivery.event_id, delivery.type,
              delivery.aggregate_type, delivery.aggregate_id, delivery.sequence, delivery.payload,
              delivery.headers, delivery.event_created_at, delivery.attempt, delivery.counted_from
)
SELECT scan.until, scan.number, claimed.endpoint, claimed.tenant, claimed.position AS id,
       claimed.event_id::text AS event_id, claimed.type, claimed.aggregate_type,
       claimed.aggregate_id, claimed.sequence, claimed.payload, claimed.headers,
       claimed.event_created_at AS created_at, NULL::timestamptz AS available_at, claimed.attempt,
       claimed.counted_from
FROM (SELECT max(scanned.endpoint) AS until, count(*) AS number FROM scanned) AS scan
LEFT JOIN claimed ON true
ORDER BY claimed.endpoint, claimed.position
