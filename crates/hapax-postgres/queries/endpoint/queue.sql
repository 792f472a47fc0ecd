-- Puts deliveries into the queue, each with a copy of its event. A delivery that is in the queue stays
-- as it is. The event has to belong to the tenant of the endpoint. Returns the new ones. They are inserted in
-- the order of the events, as unsent ones are: an insertion waits for one of the same delivery.
INSERT INTO hapax.endpoint_delivery
    (endpoint, tenant, position, event_id, type, aggregate_type, aggregate_id, sequence, payload,
     headers, event_created_at, state, attempt, next_at, created_at, ended_at, last_error)
SELECT endpoint.id, endpoint.tenant, event.id, event.event_id, event.type, event.aggregate_type,
       event.aggregate_id, event.sequence, event.payload, event.headers, event.created_at,
       queued.state, queued.attempt, now.at + queued.wait_ms * interval '1 millisecond', now.at,
       CASE WHEN queued.state <> 'waiting' THEN now.at END, queued.last_error
FROM (SELECT coalesce($8::timestamptz, clock_timestamp()) AS at) AS now
CROSS JOIN unnest($1::text[], $2::int8[], $3::text[], $4::text[], $5::int4[], $6::int8[], $7::text[])
    AS queued (endpoint, position, event_id, state, attempt, wait_ms, last_error)
JOIN hapax.endpoint AS endpoint ON endpoint.id = queued.endpoint AND endpoint.deleted_at IS NULL
JOIN hapax.outbox_event AS event
    ON event.id = queued.position
    AND event.segment IN ((queued.position >> 36 & 7)::int2, -1::int2)
    AND event.event_id = queued.event_id::uuid
    AND event.tenant = endpoint.tenant
ORDER BY event.id, endpoint.id
ON CONFLICT (endpoint, event_id) DO NOTHING
RETURNING endpoint, tenant, event_id::text AS event_id, type, attempt, last_error,
          state = 'failed' AS has_failed
