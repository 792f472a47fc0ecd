-- Puts an event (?3) into the queue that an endpoint (?2) of a tenant (?1) has received at its first
-- attempt, if the outbox still has the event. The replay takes another number: an attempt of an
-- event that was offered twice may still be in flight, and its settlement changes nothing.
INSERT INTO hapax_endpoint_delivery
    (endpoint, tenant, position, event_id, type, aggregate_type, aggregate_id, sequence, payload,
     headers, event_created_at, state, attempt, counted_from, next_at, created_at)
SELECT tried.endpoint, tried.tenant, event.id, event.event_id, event.type, event.aggregate_type,
       event.aggregate_id, event.sequence, event.payload, event.headers, event.created_at,
       'waiting', tried.number + 1, tried.number + 1, ?4, ?4
FROM (
    SELECT endpoint, tenant, position, event_id, max(number) AS number
    FROM hapax_endpoint_attempt
    WHERE tenant = ?1 AND endpoint = ?2 AND event_id = ?3
    GROUP BY endpoint, tenant, position, event_id
) AS tried
JOIN hapax_outbox_event AS event
    ON event.id = tried.position AND event.event_id = tried.event_id AND event.tenant = tried.tenant
WHERE true
ON CONFLICT (endpoint, event_id) DO NOTHING
