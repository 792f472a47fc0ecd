-- Reads on from a frontier in its segment, in one statement and so in one snapshot, without a lock
-- or a write. The first row says what was seen of the server; the sequence is read before the
-- position of the log. Late is what has an id up to the highest that was read ($1), was not visible
-- to the snapshot that read it ($2), and is now: looked for only when one of the transactions ended
-- that were open then ($3, or one from $5 on), only above the id that the oldest of them can have
-- drawn ($4), over at most so many rows ($6), and here only while that id is of this turn. What
-- lies beyond the highest id follows when nothing late is left to look for: up to so many rows ($7),
-- or with the first beyond so many bytes ($8), which are only added up one by one when all of it is
-- more (what an event is stored in counts, its headers and names too); of some shards ($9) over at most $6 rows, and then the first row says how far. Last
-- it says in which history all this was seen. It is run with the name of any of the segments.
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
SELECT NULL::int8 AS id, NULL::uuid AS event_id, NULL::text AS type, NULL::text AS tenant,
       NULL::text AS aggregate_type, NULL::text AS aggregate_id, NULL::int8 AS sequence,
       NULL::text AS payload, NULL::text AS headers, NULL::timestamptz AS created_at,
       NULL::timestamptz AS available_at, snapshot::text, age, last, written, flushed,
       late.until, CASE WHEN $9::int2[] IS NULL THEN NULL ELSE ahead.until END,
       hapax.history()
FROM sight
CROSS JOIN ahead
LEFT JOIN late ON true
UNION ALL
(SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
        created_at, available_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
 FROM (
     (SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
             created_at, available_at
      FROM (
          SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
                 headers, created_at, available_at,
                 sum(bytes) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - bytes AS before
          FROM (
              SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
                     headers, created_at, available_at,
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
     (SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
             created_at, available_at
      FROM hapax.outbox_event_0
      WHERE id > (SELECT high FROM ahead)
        AND id <= (SELECT until FROM cut)
        AND ($9::int2[] IS NULL OR shard = ANY ($9::int2[]))
      ORDER BY id
      LIMIT $7::int8)
 ) AS event
 ORDER BY id
 LIMIT $7::int8)
