-- Lists the segments that contain events and are not the one that is written to, the oldest first.
-- Only here: the SQLite store deletes events one by one.
SELECT segment
FROM (SELECT last_value >> 36 AS rotation FROM hapax.outbox_event_id) AS this
CROSS JOIN generate_series(0, 7) AS ring (segment)
WHERE segment <> this.rotation & 7
  AND EXISTS (
      SELECT 1
      FROM hapax.outbox_event AS event
      WHERE event.segment = ring.segment::int2
  )
ORDER BY segment - this.rotation - 1 & 7
