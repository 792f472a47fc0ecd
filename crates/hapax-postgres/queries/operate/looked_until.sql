-- Where a look at so many events ends; nothing where there are fewer.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT id
FROM hapax.outbox_event
WHERE id < $1::int8 AND id >= $2::int8
ORDER BY id DESC
OFFSET $3::int8
LIMIT 1
