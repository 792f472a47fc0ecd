-- Returns the id at which a visit of $3 events ends; no row if there are fewer.
-- Only here: the SQLite store counts the events that it visits in the program.
SELECT id
FROM hapax.outbox_event
WHERE id < $1::int8 AND id >= $2::int8
ORDER BY id DESC
OFFSET $3::int8
LIMIT 1
