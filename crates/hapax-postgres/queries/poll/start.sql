-- Returns the frontier of a consumer that starts now ($1: 'now'), with the oldest event that was not
-- purged ('beginning'), or with the first event that was created at a time or later (null, $2); if
-- there is no such event, it starts now. Everything as in delivery/record_start, except that the text
-- always has a snapshot: an event below the oldest ones whose transaction is open is read when it has
-- committed.
-- Only here: the SQLite store finds it in several statements, because it has no round trips.
WITH now AS MATERIALIZED (
    SELECT pg_current_snapshot() AS snapshot, hapax.history() AS history,
           last_value - (NOT is_called)::int4 AS drawn
    FROM hapax.outbox_event_id
)
SELECT CASE $1::text WHEN 'now' THEN now.drawn
           WHEN 'beginning' THEN coalesce((SELECT last FROM hapax.outbox_purged), 0)
           ELSE coalesce((
               SELECT event.id - 1
               FROM hapax.outbox_event AS event
               WHERE event.segment <> -1
                 AND event.id >= coalesce((
                     SELECT max(rotation.rotation) + 1 << 36
                     FROM hapax.rotation AS rotation
                     WHERE rotation.closed_at < $2::timestamptz - interval '5 minutes'
                 ), 0)
                 AND event.created_at >= $2::timestamptz
               ORDER BY event.id
               LIMIT 1
           ), now.drawn) END AS frontier,
       format('%s 0 %s = - - %s', now.snapshot, now.history, coalesce((
           SELECT split_part(place.snapshot, ' ', 7)
           FROM hapax.position AS place
           WHERE place.snapshot IS NOT NULL AND hapax.is_read_in(now.history, place.snapshot)
           ORDER BY split_part(place.snapshot, ' ', 7) = '0@0', place.written_at DESC
           LIMIT 1
       ), '0@0')) AS snapshot
FROM now
