-- Finds when the first event beyond a frontier was written that is not settled.
SELECT created_at
FROM hapax.outbox_event
WHERE id > $1::int8 AND id <> ALL ($2::int8[])
ORDER BY id
LIMIT 1
