-- Settles claimed deliveries, each if it is still at the attempt ($3) that is settled. $8 says whether the
-- attempt does not count for the schedule; it takes another number then, so that it is settled once. Returns
-- those that were settled. The rows are locked in the order of their ids, as where deliveries are dropped.
WITH held AS MATERIALIZED (
    SELECT delivery.id
    FROM unnest($1::text[], $2::text[], $3::int4[]) AS settled (endpoint, event_id, attempt)
    JOIN hapax.endpoint_delivery AS delivery
        ON delivery.endpoint = settled.endpoint AND delivery.event_id = settled.event_id::uuid
    WHERE delivery.attempt = settled.attempt AND delivery.state = 'waiting'
    ORDER BY delivery.id
    FOR UPDATE OF delivery
)
UPDATE hapax.endpoint_delivery AS delivery
SET state = settled.state,
    next_at = now.at + settled.wait_ms * interval '1 millisecond',
    ended_at = CASE WHEN settled.state <> 'waiting' THEN now.at END,
    last_error = settled.last_error,
    attempt = delivery.attempt + settled.is_postponed::int4,
    counted_from = delivery.counted_from + CASE WHEN settled.is_postponed THEN 2 ELSE 0 END
FROM unnest($1::text[], $2::text[], $3::int4[], $4::text[], $5::int8[], $6::text[], $8::bool[])
         AS settled (endpoint, event_id, attempt, state, wait_ms, last_error, is_postponed),
     (SELECT coalesce($7::timestamptz, clock_timestamp()) AS at) AS now,
     held
WHERE delivery.id = held.id
  AND delivery.endpoint = settled.endpoint
  AND delivery.event_id = settled.event_id::uuid
  AND delivery.attempt = settled.attempt
  AND delivery.state = 'waiting'
RETURNING delivery.endpoint, delivery.tenant, delivery.event_id::text AS event_id, delivery.type,
          delivery.attempt, delivery.last_error, delivery.state = 'failed' AS has_failed
