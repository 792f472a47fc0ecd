-- Reads the highest position that was ever given. A rotation skips positions, so this is not the
-- number of events.
SELECT last_value - (NOT is_called)::int4
FROM hapax.outbox_event_id
