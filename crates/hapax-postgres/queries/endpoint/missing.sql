-- Returns those of these positions ($1, with the ids of their events in $2) whose event is not in the
-- outbox.
SELECT queued.position
FROM unnest($1::int8[], $2::text[]) AS queued (position, event_id)
WHERE NOT EXISTS (
    SELECT 1
    FROM hapax.outbox_event AS event
    WHERE event.id = queued.position
      AND event.segment IN ((queued.position >> 36 & 7)::int2, -1::int2)
      AND event.event_id = queued.event_id::uuid
)
