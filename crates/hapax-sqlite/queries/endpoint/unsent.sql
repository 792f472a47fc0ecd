-- Reads the events from an id (?3) on and before another (?4), in order, each with whether an endpoint (?2) of
-- a tenant (?1) never got it although it belongs to the tenant: it has neither a delivery nor an attempt. The
-- caller stops after a number of events.
SELECT event.id, event.event_id, event.type, event.tenant, event.aggregate_type, event.aggregate_id,
       event.sequence, event.payload, event.headers, event.created_at, event.available_at,
       event.tenant IS NOT NULL
           AND event.tenant = ?1
           AND NOT EXISTS (
               SELECT 1
               FROM hapax_endpoint_delivery AS delivery
               WHERE delivery.endpoint = ?2 AND delivery.event_id = event.event_id
           )
           AND NOT EXISTS (
               SELECT 1
               FROM hapax_endpoint_attempt AS attempt
               WHERE attempt.endpoint = ?2 AND attempt.event_id = event.event_id
           ) AS is_unsent
FROM hapax_outbox_event AS event
WHERE event.id >= ?3 AND event.id < ?4
ORDER BY event.id
