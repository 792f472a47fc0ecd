-- Counts a delivery of an event, and an effect if the delivery had one.
INSERT INTO receiver_event (event_id, type, deliveries, effects, first_at, last_at)
VALUES (?1, ?2, 1, ?3, ?4, ?4)
ON CONFLICT (event_id) DO UPDATE
SET deliveries = deliveries + 1, effects = effects + excluded.effects, last_at = excluded.last_at
