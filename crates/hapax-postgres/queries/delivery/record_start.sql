-- Records where a destination starts ($2: 'beginning', 'now', or null for the time $3), unless it
-- has a record or a partition, or is removed. A time finds the first event that was created at that
-- time or later; if there is no such event, it is the same as 'now'. Times do not rise with ids: they
-- are those of the producers, and an adopted row keeps its time. So the search reads every event
-- after the last rotation that was closed, by the clock of the database, five minutes before that
-- time: only a producer whose clock is further ahead wrote a later time into an earlier rotation.
-- The sequence is read after the statement's snapshot was taken, so every event that is visible has
-- an id up to the frontier, and one that is not visible is late: it is read when its transaction has
-- ended. The text is that of the store's frontier. The floors say which ids the open transactions
-- cannot have drawn. Those of any partition are valid, and save a search of the whole outbox; '0@0'
-- says nothing.
WITH now AS MATERIALIZED (
    SELECT pg_current_snapshot() AS snapshot, hapax.history() AS history,
           last_value - (NOT is_called)::int4 AS drawn
    FROM hapax.outbox_event_id
)
INSERT INTO hapax.start (destination, frontier, snapshot)
SELECT $1::text,
       CASE $2::text WHEN 'beginning' THEN 0 WHEN 'now' THEN now.drawn ELSE coalesce((
           SELECT event.id - 1
           FROM hapax.outbox_event AS event
           WHERE event.segment <> -1
             AND event.id >= coalesce((
                 SELECT max(rotation.rotation) + 1 << 36
                 FROM hapax.rotation AS rotation
                 WHERE rotation.closed_at < $3::timestamptz - interval '5 minutes'
             ), 0)
             AND event.created_at >= $3::timestamptz
           ORDER BY event.id
           LIMIT 1
       ), now.drawn) END,
       CASE WHEN $2::text = 'beginning' THEN NULL
            ELSE format('%s 0 %s = - - %s', now.snapshot, now.history, coalesce((
                SELECT split_part(place.snapshot, ' ', 7)
                FROM hapax.position AS place
                WHERE place.snapshot IS NOT NULL AND hapax.is_read_in(now.history, place.snapshot)
                ORDER BY split_part(place.snapshot, ' ', 7) = '0@0', place.written_at DESC
                LIMIT 1
            ), '0@0')) END
FROM now
WHERE NOT EXISTS (
    SELECT 1 FROM hapax.lease WHERE split_part(partition, '/', 1) = $1::text
) AND NOT EXISTS (
    SELECT 1 FROM hapax.declaration WHERE name = $1::text AND removed_at IS NOT NULL
)
ON CONFLICT (destination) DO NOTHING
RETURNING 1
