-- The highest id that was drawn.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT last_value - (NOT is_called)::int4
FROM hapax.outbox_event_id
