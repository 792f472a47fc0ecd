-- Lists the enabled endpoints with the most deliveries that wait, at most ?3, among the first ?1 endpoints
-- for which any wait. Up to ?2 of each are counted. The search goes from one endpoint to the next along
-- the index, so an endpoint with many deliveries costs no more than ?2.
WITH RECURSIVE scanned (endpoint, place) AS (
    SELECT min(endpoint), 1
    FROM hapax_endpoint_delivery
    WHERE state = 'waiting'
    UNION ALL
    SELECT (SELECT min(delivery.endpoint)
            FROM hapax_endpoint_delivery AS delivery
            WHERE delivery.state = 'waiting' AND delivery.endpoint > scanned.endpoint),
           scanned.place + 1
    FROM scanned
    WHERE scanned.endpoint IS NOT NULL AND scanned.place < ?1
)
SELECT endpoint.id, endpoint.tenant,
       (SELECT count(*)
        FROM (
            SELECT 1
            FROM hapax_endpoint_delivery AS delivery
            WHERE delivery.endpoint = scanned.endpoint AND delivery.state = 'waiting'
            LIMIT ?2
        )) AS waiting
FROM scanned
JOIN hapax_endpoint AS endpoint ON endpoint.id = scanned.endpoint
WHERE endpoint.deleted_at IS NULL AND endpoint.disabled_reason IS NULL
ORDER BY waiting DESC, endpoint.id
LIMIT ?3
