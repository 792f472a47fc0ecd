-- Returns the transaction that wrote an event.
SELECT xid::text::int8
FROM hapax.outbox_event
WHERE id = $1::int8 AND segment IN ((($1::int8 >> 36) & 7)::int2, -1)
