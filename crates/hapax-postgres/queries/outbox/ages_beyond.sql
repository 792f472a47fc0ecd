-- Finds when the first event after a frontier was written that is not settled. Events that are kept
-- apart from their segment are before every frontier.
SELECT created_at
FROM hapax.outbox_event
WHERE id > $1::int8 AND id <> ALL ($2::int8[]) AND segment <> -1::int2
ORDER BY id
LIMIT 1
