-- Counts the events that match a filter, up to an id.
-- Only here: the SQLite store filters the events that it visits in the program.
SELECT count(*)
FROM hapax.outbox_event
WHERE id >= $9::int8 AND id < $8::int8
  AND ($1::text IS NULL OR type LIKE $1::text)
  AND ($2::text IS NULL OR tenant = $2::text)
  AND ($3::text IS NULL OR aggregate_type = $3::text)
  AND ($4::text IS NULL OR aggregate_id = $4::text)
  AND ($5::text IS NULL OR event_id = $5::text::uuid)
  AND ($6::timestamptz IS NULL OR created_at >= $6::timestamptz)
  AND ($7::timestamptz IS NULL OR created_at < $7::timestamptz)
