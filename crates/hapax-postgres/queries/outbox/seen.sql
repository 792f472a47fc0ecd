-- Divides by zero where an event that was read ($1, $2) is not the one that stands under its id, and
-- what was sent behind it fails with it: the database was set back since, and the id was given to
-- another event, or to none that is committed. But for a settlement of a part ($3, $4, $5) that is
-- written already: what it has passed may be purged. Each id is looked up by itself, by the key of
-- the table. It is run with the name of any of the segments.
-- Only here: no id of the other store is given again before its reader asks.
SELECT 1 / (count(*) = 0)::int4
FROM unnest($1::int8[], $2::bytea[]) AS seen (id, event_id)
WHERE CASE WHEN (
    SELECT uuid_send(event.event_id) FROM hapax.outbox_event_0 AS event WHERE event.id = seen.id
) = seen.event_id THEN false ELSE NOT EXISTS (
    SELECT 1
    FROM hapax.position AS stands
    WHERE stands.part = $3::text
      AND stands.checkpoint_epoch = $4::int8
      AND stands.checkpoint_settlement = $5::int8
      AND $5::int8 > 0
) END
