-- Lists the received events, oldest first, one keyset page at a time. The ids of events increase
-- with time.
SELECT event_id, type, deliveries, effects, first_at, last_at
FROM receiver_event
WHERE event_id > ?1
ORDER BY event_id
LIMIT ?2
