-- Reads the highest position that was ever given.
SELECT last_value - (NOT is_called)::int4
FROM hapax.outbox_event_id
