-- Claims the probes that are due, of up to $1 endpoints: of each the delivery with the oldest event that
-- waits, or else the last one that had failed when the endpoint was disabled or changed, which waits from now
-- on and has all of its attempts again. One that has failed since could not be sent by a probe. A probe is due
-- again after $2 milliseconds. A delivery that was postponed for longer since the endpoint was disabled is not
-- chosen before. An endpoint that has no delivery is not probed any more. A delivery that is being settled is
-- not waited for: its transaction waits for the row of the endpoint, which is locked here.
WITH now AS MATERIALIZED (
    SELECT coalesce($3::timestamptz, clock_timestamp()) AS at
), due AS MATERIALIZED (
    SELECT endpoint.id, endpoint.disabled_at,
           greatest(endpoint.disabled_at, endpoint.changed_at) AS changed_at
    FROM hapax.endpoint AS endpoint, now
    WHERE endpoint.probe_at <= now.at
      AND endpoint.disabled_reason IS NOT NULL
      AND endpoint.deleted_at IS NULL
    ORDER BY endpoint.probe_at, endpoint.id
    LIMIT $1::int8
    FOR UPDATE OF endpoint SKIP LOCKED
), chosen AS MATERIALIZED (
    SELECT due.id AS endpoint, coalesce(
        (
            SELECT oldest.id
            FROM hapax.endpoint_delivery AS oldest
            WHERE oldest.state = 'waiting'
              AND oldest.id = (
                  SELECT delivery.id
                  FROM hapax.endpoint_delivery AS delivery
                  WHERE delivery.state = 'waiting'
                    AND delivery.endpoint = due.id
                    AND (delivery.next_at <= now.at + $2::int8 * interval '1 millisecond'
                         OR coalesce(delivery.tried_at < due.disabled_at, true))
                  ORDER BY delivery.position, delivery.id
                  LIMIT 1
              )
            FOR UPDATE SKIP LOCKED
        ),
        (
            SELECT delivery.id
            FROM hapax.endpoint_delivery AS delivery
            WHERE delivery.state = 'failed'
              AND delivery.endpoint = due.id
              AND delivery.ended_at <= due.changed_at
            ORDER BY delivery.ended_at DESC, delivery.id DESC
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        )
    ) AS id
    FROM due, now
), leased AS (
    UPDATE hapax.endpoint AS endpoint
    SET probe_at = CASE
        WHEN EXISTS (
            SELECT 1
            FROM hapax.endpoint_delivery AS waits
            WHERE waits.state = 'waiting' AND waits.endpoint = chosen.endpoint
        ) OR EXISTS (
            SELECT 1
            FROM hapax.endpoint_delivery AS failed
            WHERE failed.state = 'failed' AND failed.endpoint = chosen.endpoint
        )
        THEN now.at + $2::int8 * interval '1 millisecond' END
    FROM chosen, now
    WHERE endpoint.id = chosen.endpoint
)
UPDATE hapax.endpoint_delivery AS delivery
SET state = 'waiting',
    attempt = delivery.attempt + 1,
    counted_from = CASE WHEN delivery.state = 'failed' THEN delivery.attempt
                        ELSE delivery.counted_from END,
    tried_at = now.at,
    next_at = now.at + $2::int8 * interval '1 millisecond',
    ended_at = NULL
FROM chosen, now
WHERE delivery.id = chosen.id
RETURNING delivery.endpoint, delivery.tenant, delivery.position AS id,
          delivery.event_id::text AS event_id, delivery.type, delivery.aggregate_type,
          delivery.aggregate_id, delivery.sequence, delivery.payload, delivery.headers,
          delivery.event_created_at AS created_at, NULL::timestamptz AS available_at,
          delivery.attempt, delivery.counted_from
