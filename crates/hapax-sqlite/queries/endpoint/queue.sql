-- Puts a delivery into the queue, with a copy of its event. A delivery that is in the queue stays as it
-- is. The event has to belong to the tenant of the endpoint. Returns its tenant and its type if the
-- delivery is new.
INSERT INTO hapax_endpoint_delivery
    (endpoint, tenant, position, event_id, type, aggregate_type, aggregate_id, sequence, payload,
     headers, event_created_at, state, attempt, next_at, created_at, ended_at, last_error)
SELECT endpoint.id, endpoint.tenant, event.id, event.event_id, event.type, event.aggregate_type,
       event.aggregate_id, event.sequence, event.payload, event.headers, event.created_at,
       ?4, ?5, ?8 + ?6, ?8, CASE WHEN ?4 <> 'waiting' THEN ?8 END, ?7
FROM hapax_endpoint AS endpoint
JOIN hapax_outbox_event AS event ON event.tenant = endpoint.tenant
WHERE endpoint.id = ?1 AND endpoint.deleted_at IS NULL AND event.id = ?2 AND event.event_id = ?3
ON CONFLICT (endpoint, event_id) DO NOTHING
RETURNING tenant, type
