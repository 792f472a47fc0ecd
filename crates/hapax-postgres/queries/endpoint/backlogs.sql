-- Lists the enabled endpoints with the most deliveries that wait, at most $3, among the first $1 endpoints
-- for which any wait. Up to $2 of each are counted. The search goes from one endpoint to the next along
-- the index, so an endpoint with many deliveries costs no more than $2.
WITH RECURSIVE scanned (endpoint, place) AS (
    (
        SELECT delivery.endpoint, 1
        FROM hapax.endpoint_delivery AS delivery
        WHERE delivery.state = 'waiting'
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
    WHERE scanned.place < $1::int8
)
SELECT endpoint.id, endpoint.tenant, counted.waiting
FROM scanned
JOIN hapax.endpoint AS endpoint ON endpoint.id = scanned.endpoint
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting
    FROM (
        SELECT 1
        FROM hapax.endpoint_delivery AS delivery
        WHERE delivery.endpoint = scanned.endpoint AND delivery.state = 'waiting'
        LIMIT $2::int8
    ) AS looked
) AS counted
WHERE endpoint.deleted_at IS NULL AND endpoint.disabled_reason IS NULL
ORDER BY counted.waiting DESC, endpoint.id
LIMIT $3::int8
