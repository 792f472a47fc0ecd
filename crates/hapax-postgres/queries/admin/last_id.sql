-- Returns the highest id that was drawn.
-- Only here: the SQLite store belongs to one process, and has no admin API.
SELECT last_value - (NOT is_called)::int4
FROM hapax.outbox_event_id
