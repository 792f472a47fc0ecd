-- Divides by zero if an event that was read ($1, $2) is not the one that is stored under its id, so
-- that the later statements of the pipeline fail: the database was set back since, and the id was
-- given to another event, or to one that was not committed. A settlement of a partition ($3, $4,
-- $5) that is written already is exempt, because the events that it has passed may be purged. Each
-- id is looked up separately, by the primary key. The query is run with the name of any of the
-- segments.
-- Only here: the SQLite store does not give an id again before its reader has asked.
SELECT 1 / (count(*) = 0)::int4
FROM unnest($1::int8[], $2::bytea[]) AS seen (id, event_id)
WHERE CASE WHEN (
    SELECT uuid_send(event.event_id) FROM hapax.outbox_event_0 AS event WHERE event.id = seen.id
) = seen.event_id THEN false ELSE NOT EXISTS (
    SELECT 1
    FROM hapax.position AS stands
    WHERE stands.partition = $3::text
      AND stands.checkpoint_epoch = $4::int8
      AND stands.checkpoint_settlement = $5::int8
      AND $5::int8 > 0
) END
