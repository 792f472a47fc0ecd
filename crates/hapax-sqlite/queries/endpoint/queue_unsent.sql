-- Puts an event (at a position ?3, with an id ?4) into the queue of an endpoint (?2) of a tenant (?1) that it
-- never got. One that was sent or queued meanwhile is left out, and so is one that the outbox does not have
-- any more.
INSERT INTO hapax_endpoint_delivery
    (endpoint, tenant, position, event_id, type, aggregate_type, aggregate_id, sequence, payload,
     headers, event_created_at, state, attempt, next_at, created_at)
SELECT endpoint.id, endpoint.tenant, event.id, event.event_id, event.type, event.aggregate_type,
       event.aggregate_id, event.sequence, event.payload, event.headers, event.created_at,
       'waiting', 0, max(?5, coalesce(event.available_at, ?5)), ?5
FROM hapax_endpoint AS endpoint
JOIN hapax_outbox_event AS event ON event.tenant = endpoint.tenant
WHERE endpoint.id = ?2
  AND endpoint.tenant = ?1
  AND endpoint.deleted_at IS NULL
  AND event.id = ?3
  AND event.event_id = ?4
  AND NOT EXISTS (
      SELECT 1
      FROM hapax_endpoint_attempt AS attempt
      WHERE attempt.endpoint = endpoint.id AND attempt.event_id = event.event_id
  )
ON CONFLICT (endpoint, event_id) DO NOTHING
