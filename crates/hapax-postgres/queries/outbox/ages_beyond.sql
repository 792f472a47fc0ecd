-- Finds when the first event beyond a frontier was written that is not settled. Those that were kept
-- apart lie beyond no frontier.
SELECT created_at
FROM hapax.outbox_event
WHERE id > $1::int8 AND id <> ALL ($2::int8[]) AND segment <> -1::int2
ORDER BY id
LIMIT 1
