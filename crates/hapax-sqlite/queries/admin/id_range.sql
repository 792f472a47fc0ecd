-- Returns the lowest and the highest position; nulls without events.
-- Only here: the PostgreSQL store searches for a point in time in a function of its schema.
SELECT (SELECT min(id) FROM hapax_outbox_event) AS low,
       (SELECT max(id) FROM hapax_outbox_event) AS high
