-- Reads the events after a frontier in its segment, in one statement and therefore in one snapshot,
-- without a lock or a write. The first row describes the server's state; the sequence is read
-- before the position of the log.
-- An event is late if its id is not above the highest that was read ($1), if it was not visible to
-- the snapshot of that read ($2), and if it is visible now. The query looks for late events only if
-- one of the transactions has ended that were open then ($3, or one from $5 on), only above the
-- lowest id that the oldest of them can have drawn ($4), in at most $6 rows, and here only if that
-- id is in this segment.
-- Events after the highest id follow when no late events are left to look for: at most $7 rows, up
-- to and including the first that exceeds $8 bytes in total. The bytes of an event include its
-- headers and names, and are only added up row by row if the total is larger. If shards ($9) are
-- given, at most $6 rows are visited, and the first row contains the last id that was visited.
-- The last column is the history in which all this was seen. The query is run with the name of any
-- of the segments.
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
    SELECT floor, CASE WHEN floor >> 36 < $1::int8 >> 36 THEN floor ELSE coalesce((
        SELECT id
        FROM hapax.outbox_event_0
        WHERE id > floor AND id <= $1::int8
        ORDER BY id
        OFFSET $6::int8
        LIMIT 1
    ), $1::int8) END AS until
    FROM (
        SELECT min(floor) AS floor
        FROM sight, unnest($3::text[]::xid8[], $4::int8[]) AS open (xid, floor)
        WHERE pg_visible_in_snapshot(open.xid, snapshot)
           OR (open.xid = $5::text::xid8 AND open.xid < pg_snapshot_xmax(snapshot))
    ) AS lowest
    WHERE floor IS NOT NULL
), ahead AS MATERIALIZED (
    SELECT CASE WHEN (SELECT until < $1::int8 FROM late) THEN NULL ELSE $1::int8 END AS high,
           CASE WHEN $9::int2[] IS NULL THEN $1::int8 | 68719476735 ELSE coalesce((
               SELECT id
               FROM hapax.outbox_event_0
               WHERE id > $1::int8 AND id <= $1::int8 | 68719476735
               ORDER BY id
               OFFSET $6::int8
               LIMIT 1
           ), (
               SELECT id
               FROM hapax.outbox_event_0
               WHERE id > $1::int8 AND id <= $1::int8 | 68719476735
               ORDER BY id DESC
               LIMIT 1
           ), $1::int8) END AS until
), cut AS MATERIALIZED (
    SELECT CASE WHEN sum(bytes) > $8::int8 THEN (
        SELECT min(id)
        FROM (
            SELECT id, sum(bytes) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS bytes
            FROM (
                SELECT id, octet_length(payload) + octet_length(headers)
                    + octet_length(concat(type, tenant, aggregate_type, aggregate_id)) AS bytes
                FROM hapax.outbox_event_0
                WHERE id > (SELECT high FROM ahead)
                  AND id <= (SELECT until FROM ahead)
                  AND ($9::int2[] IS NULL OR shard = ANY ($9::int2[]))
                ORDER BY id
                LIMIT $7::int8
            ) AS found
        ) AS summed
        WHERE bytes > $8::int8
    ) ELSE (SELECT until FROM ahead) END AS until
    FROM (
        SELECT octet_length(payload) + octet_length(headers)
            + octet_length(concat(type, tenant, aggregate_type, aggregate_id)) AS bytes
        FROM hapax.outbox_event_0
        WHERE id > (SELECT high FROM ahead)
          AND id <= (SELECT until FROM ahead)
          AND ($9::int2[] IS NULL OR shard = ANY ($9::int2[]))
        ORDER BY id
        LIMIT $7::int8
    ) AS found
)
SELECT NULL::int8 AS id, NULL::int2 AS shard, NULL::uuid AS event_id, NULL::text AS type,
       NULL::text AS tenant, NULL::text AS aggregate_type, NULL::text AS aggregate_id,
       NULL::int8 AS sequence, NULL::text AS payload, NULL::text AS headers,
       NULL::timestamptz AS created_at, NULL::timestamptz AS available_at,
       snapshot::text AS snapshot, age, last, written, flushed,
       late.until AS late_until,
       CASE WHEN $9::int2[] IS NULL THEN NULL ELSE ahead.until END AS shards_until,
       hapax.history() AS history
FROM sight
CROSS JOIN ahead
LEFT JOIN late ON true
UNION ALL
(SELECT id, shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
        created_at, available_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
 FROM (
     (SELECT id, shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
             headers, created_at, available_at
      FROM (
          SELECT id, shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
                 headers, created_at, available_at,
                 sum(bytes) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - bytes AS before
          FROM (
              SELECT id, shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence,
                     payload, headers, created_at, available_at,
                     octet_length(payload) + octet_length(headers)
                         + octet_length(concat(type, tenant, aggregate_type, aggregate_id)) AS bytes
              FROM hapax.outbox_event_0
              WHERE id > (SELECT floor FROM late)
                AND id <= (SELECT until FROM late)
                AND NOT pg_visible_in_snapshot(xid, (SELECT $2::text::pg_snapshot))
                AND ($9::int2[] IS NULL OR shard = ANY ($9::int2[]))
              ORDER BY id
              LIMIT $7::int8
          ) AS found
      ) AS summed
      WHERE before <= $8::int8)
     UNION ALL
     (SELECT id, shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
             headers, created_at, available_at
      FROM hapax.outbox_event_0
      WHERE id > (SELECT high FROM ahead)
        AND id <= (SELECT until FROM cut)
        AND ($9::int2[] IS NULL OR shard = ANY ($9::int2[]))
      ORDER BY id
      LIMIT $7::int8)
 ) AS event
 ORDER BY id
 LIMIT $7::int8)
