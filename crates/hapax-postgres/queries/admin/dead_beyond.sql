-- Reads the next dead letters of a partition after a position ($9) and before another ($13), at
-- most $10, and whether the filter matches each. It only reads those that were dead when they were
-- counted for a job: their rows were written by a transaction that was visible in the job's
-- snapshot ($14), regardless of clocks. If the snapshot is not known, or if the database was
-- restored and counts transactions differently, the delivery must have died before the job's time
-- ($15). A dead letter that was replayed since and died again does not count.
WITH seen AS MATERIALIZED (
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8 AS next,
           CASE WHEN hapax.is_read_in(hapax.history(), $14::text)
                THEN split_part($14::text, ' ', 1)::pg_snapshot END AS snapshot
)
SELECT looked.position,
       (event.id IS NOT NULL
        AND ($1::text IS NULL OR type LIKE $1::text)
        AND ($2::text IS NULL OR tenant = $2::text)
        AND ($3::text IS NULL OR aggregate_type = $3::text)
        AND ($4::text IS NULL OR aggregate_id = $4::text)
        AND ($5::text IS NULL OR event_id = $5::text::uuid)
        AND ($6::timestamptz IS NULL OR created_at >= $6::timestamptz)
        AND ($7::timestamptz IS NULL OR created_at < $7::timestamptz)
        AND looked.attempt >= $11::int4
        AND ($12::text IS NULL OR strpos(lower(looked.last_error), lower($12::text)) > 0))
           IS TRUE AS fits
FROM (
    SELECT position, attempt, last_error
    FROM hapax.delivery
    WHERE destination = $8::text AND state = 'dead'
      AND position > $9::int8 AND position < $13::int8
      AND coalesce(
          -- A row only contains the low half of its transaction's number.
          pg_visible_in_snapshot(
              (SELECT (next - (next - delivery.xmin::text::int8 & 4294967295))::text::xid8 FROM seen),
              (SELECT snapshot FROM seen)),
          changed_at < $15::timestamptz)
    ORDER BY position
    LIMIT $10::int8
) AS looked
LEFT JOIN hapax.outbox_event AS event
    ON event.id = looked.position
   AND event.segment IN (((looked.position >> 36) & 7)::int2, -1)
ORDER BY looked.position
