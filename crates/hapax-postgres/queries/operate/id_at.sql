-- Roughly the first id of an event that was created at or after a moment.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT hapax.id_at($1::timestamptz)
