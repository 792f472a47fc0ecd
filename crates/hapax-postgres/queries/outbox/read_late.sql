-- Reads more late events of one segment: those between two ids that were not visible to the earlier
-- snapshot and are visible to the later one, which found them. If there is no later snapshot, all
-- their writers have ended. The first row contains the last id that was visited, after at most $8
-- rows, and the history. The query is run with the name of any of the segments.
-- Only here: with a single writer, no event is late.
WITH looked AS MATERIALIZED (
    SELECT coalesce((
        SELECT id
        FROM hapax.outbox_event_0
        WHERE id > $1::int8 AND id <= $2::int8
        ORDER BY id
        OFFSET $8::int8
        LIMIT 1
    ), $2::int8) AS until
)
SELECT until AS id, NULL::int2 AS shard, NULL::uuid AS event_id, NULL::text AS type,
       NULL::text AS tenant, NULL::text AS aggregate_type, NULL::text AS aggregate_id,
       NULL::int8 AS sequence, NULL::text AS payload, NULL::text AS headers,
       NULL::timestamptz AS created_at, NULL::timestamptz AS available_at,
       hapax.history() AS history
FROM looked
UNION ALL
(SELECT id, shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
        created_at, available_at, NULL
 FROM (
     SELECT id, shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
            headers, created_at, available_at,
            sum(bytes) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - bytes AS before
     FROM (
         SELECT id, shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
                headers, created_at, available_at,
                octet_length(payload) + octet_length(headers)
                    + octet_length(concat(type, tenant, aggregate_type, aggregate_id)) AS bytes
         FROM hapax.outbox_event_0
         WHERE id > $1::int8
           AND id <= (SELECT until FROM looked)
           AND NOT pg_visible_in_snapshot(xid, (SELECT $3::text::pg_snapshot))
           AND ($4::text IS NULL
                OR pg_visible_in_snapshot(xid, (SELECT $4::text::pg_snapshot)))
           AND ($7::int2[] IS NULL OR shard = ANY ($7::int2[]))
         ORDER BY id
         LIMIT $5::int8
     ) AS found
 ) AS event
 WHERE before <= $6::int8
 ORDER BY id)
