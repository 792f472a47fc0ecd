-- Reads on through late events: those between two ids that were not visible to the earlier snapshot
-- and were to the later one, which found them. Without a later one none of their writers is left.
-- Only here: a single writer is never late.
SELECT id, event_id::text, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at
FROM (
    SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
           created_at, available_at,
           sum(octet_length(payload)) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING)
               - octet_length(payload) AS before
    FROM (
        SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
               headers, created_at, available_at
        FROM hapax.outbox_event
        WHERE id > $1::int8
          AND id <= $2::int8
          AND NOT pg_visible_in_snapshot(xid, (SELECT $3::text::pg_snapshot))
          AND ($4::text IS NULL
               OR pg_visible_in_snapshot(xid, (SELECT $4::text::pg_snapshot)))
        ORDER BY id
        LIMIT $5::int8
    ) AS found
) AS event
WHERE before <= $6::int8
ORDER BY id
