-- Inserts inbox messages: one event in ten is accepted in this database.
INSERT INTO hapax.inbox_message
    (consumer, message_id, source, payload_hash, received_at, processed_at, result)
SELECT (ARRAY['billing', 'search', 'points', 'audit', 'mail'])[1 + (id & 68719476735) / 10 % 5],
       event_id::text, CASE WHEN (id & 68719476735) / 10 % 50 = 0 THEN 'partner' ELSE 'shop' END,
       sha256(convert_to(payload, 'UTF8')), created_at + interval '50 milliseconds',
       created_at + interval '70 milliseconds', 'done'
FROM hapax.outbox_event
WHERE id >= plant.position($1::bigint) AND id < plant.position($2::bigint)
  AND (id & 68719476735) % 10 = 6
