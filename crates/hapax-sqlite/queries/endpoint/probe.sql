-- Finds the probes that are due at a time (?2), of up to ?1 endpoints: of each the delivery with the oldest
-- event that waits, or else the last one that had failed when the endpoint was disabled or changed; null if
-- there is none. One that has failed since could not be sent by a probe. A delivery that was postponed beyond
-- the next probe (?3) since the endpoint was disabled is not found. Each row also says whether the endpoint has
-- any delivery.
SELECT endpoint.id AS endpoint, coalesce(
    (
        SELECT delivery.id
        FROM hapax_endpoint_delivery AS delivery
        WHERE delivery.state = 'waiting'
          AND delivery.endpoint = endpoint.id
          AND (delivery.next_at <= ?3 OR coalesce(delivery.tried_at < endpoint.disabled_at, true))
        ORDER BY delivery.position, delivery.id
        LIMIT 1
    ),
    (
        SELECT delivery.id
        FROM hapax_endpoint_delivery AS delivery
        WHERE delivery.state = 'failed'
          AND delivery.endpoint = endpoint.id
          AND delivery.ended_at <= max(endpoint.disabled_at, endpoint.changed_at)
        ORDER BY delivery.ended_at DESC, delivery.id DESC
        LIMIT 1
    )
) AS delivery, EXISTS (
    SELECT 1
    FROM hapax_endpoint_delivery AS waits
    WHERE waits.state = 'waiting' AND waits.endpoint = endpoint.id
) OR EXISTS (
    SELECT 1
    FROM hapax_endpoint_delivery AS failed
    WHERE failed.state = 'failed' AND failed.endpoint = endpoint.id
) AS has_any
FROM hapax_endpoint AS endpoint
WHERE endpoint.probe_at <= ?2 AND endpoint.disabled_reason IS NOT NULL AND endpoint.deleted_at IS NULL
ORDER BY endpoint.probe_at, endpoint.id
LIMIT ?1
