-- Reads what has fallen due, the longest due first, up to so many rows ($4) and the first beyond so
-- many bytes ($5). The index holds what is scheduled or retrying: what is blocked or dead never
-- falls due.
SELECT id, event_id::text, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at, state, attempt, next_at, order_key
FROM (
    SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
           created_at, available_at, state, attempt, next_at, order_key,
           sum(octet_length(payload)) OVER (ORDER BY next_at, id ROWS UNBOUNDED PRECEDING)
               - octet_length(payload) AS before
    FROM (
        SELECT event.id, event.event_id, event.type, event.tenant, event.aggregate_type,
               event.aggregate_id, event.sequence, event.payload, event.headers,
               event.created_at, event.available_at, delivery.state, delivery.attempt,
               delivery.next_at, delivery.order_key
        FROM hapax.delivery AS delivery
        JOIN hapax.outbox_event AS event ON event.id = delivery.position
            AND event.segment IN ((delivery.position >> 36 & 7)::int2, -1::int2)
        WHERE delivery.destination = $1::text
          AND delivery.state IN ('scheduled', 'retrying')
          AND delivery.next_at <= $2::timestamptz
          AND delivery.position <> ALL ($3::int8[])
        ORDER BY delivery.next_at, delivery.position
        LIMIT $4::int8
    ) AS found
) AS parked
WHERE before <= $5::int8
ORDER BY next_at, id
