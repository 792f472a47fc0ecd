-- Reads on from a frontier, in one statement and so in one snapshot, without a lock or a write.
-- Late is what has an id up to the highest that was read ($1), was not visible to the snapshot
-- that read it ($2), and is now: looked for only when one of the transactions ended that were open
-- then ($3, or one from $5 on), only above the id that the oldest of them can have drawn ($4), and
-- at most over so many ids ($6). What lies beyond the highest id follows when nothing late is left.
-- The events end after so many rows ($7), or with the first beyond so many bytes ($8). What is seen
-- of the server comes with the first row; the sequence is read before the position of the log.
WITH drawn AS MATERIALIZED (
    SELECT last_value - (NOT is_called)::int4 AS last
    FROM hapax.outbox_event_id
), sight AS MATERIALIZED (
    SELECT pg_current_snapshot() AS snapshot,
           age('3'::xid) AS age,
           last,
           CASE WHEN pg_is_in_recovery() THEN NULL
                ELSE (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8 END AS written,
           CASE WHEN pg_is_in_recovery() THEN NULL
                ELSE (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8 END AS flushed
    FROM drawn
), late AS MATERIALIZED (
    SELECT min(floor) AS floor, least(min(floor) + $6::int8, $1::int8) AS until
    FROM sight, unnest($3::text[]::xid8[], $4::int8[]) AS open (xid, floor)
    WHERE pg_visible_in_snapshot(open.xid, snapshot)
       OR (open.xid = $5::text::xid8 AND open.xid < pg_snapshot_xmax(snapshot))
)
SELECT event.id, event_id::text, type, tenant, aggregate_type, aggregate_id, sequence, payload,
       headers, created_at, available_at,
       CASE WHEN number IS NULL OR number = 1 THEN snapshot::text END, age, last, written, flushed,
       late.until
FROM sight
CROSS JOIN late
LEFT JOIN LATERAL (
    SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
           created_at, available_at,
           row_number() OVER up_to AS number,
           sum(octet_length(payload)) OVER up_to - octet_length(payload) AS before
    FROM (
        (SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
                headers, created_at, available_at
         FROM hapax.outbox_event
         WHERE id > late.floor
           AND id <= late.until
           AND NOT pg_visible_in_snapshot(xid, (SELECT $2::text::pg_snapshot))
         ORDER BY id
         LIMIT $7::int8)
        UNION ALL
        (SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
                headers, created_at, available_at
         FROM hapax.outbox_event
         WHERE id > $1::int8
           AND (late.until IS NULL OR late.until = $1::int8)
         ORDER BY id
         LIMIT $7::int8)
        ORDER BY id
        LIMIT $7::int8
    ) AS found
    WINDOW up_to AS (ORDER BY id ROWS UNBOUNDED PRECEDING)
) AS event ON event.before <= $8::int8
ORDER BY event.id
