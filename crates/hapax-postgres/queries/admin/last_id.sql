-- Returns the highest id that was drawn.
-- Only here: the ids of the SQLite store are not drawn from a sequence.
SELECT last_value - (NOT is_called)::int4
FROM hapax.outbox_event_id
