-- Says which transaction wrote an event.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT xid::text::int8
FROM hapax.outbox_event
WHERE id = $1::int8 AND segment IN ((($1::int8 >> 36) & 7)::int2, -1)
