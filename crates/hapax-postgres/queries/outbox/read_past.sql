-- Reads past tenants that fill the window, in one segment: visible events after an id ($1) whose
-- tenant is not among these ($2, and $7 for events without a tenant), in order, up to $3 rows or
-- the first that exceeds $4 bytes in total, over at most $6 rows. The first row contains the last
-- id that was visited, the value of the sequence, and the history. The query is run with the name
-- of any of the segments.
-- Only here: the SQLite store does not read past tenants.
WITH looked AS MATERIALIZED (
    SELECT (
        SELECT id
        FROM hapax.outbox_event_0
        WHERE id > $1::int8 AND id <= $1::int8 | 68719476735
        ORDER BY id
        OFFSET $6::int8
        LIMIT 1
    ) AS until, (
        SELECT last_value
        FROM hapax.outbox_event_id
    ) AS last
), others AS MATERIALIZED (
    SELECT id
    FROM hapax.outbox_event_0
    WHERE id > $1::int8
      AND id <= coalesce((SELECT until FROM looked), $1::int8 | 68719476735)
      AND CASE WHEN tenant IS NULL THEN NOT $7::bool ELSE tenant <> ALL ($2::text[]) END
      AND ($5::int2[] IS NULL OR shard = ANY ($5::int2[]))
    ORDER BY id
    LIMIT $3::int8
)
SELECT until AS id, NULL::uuid AS event_id, NULL::text AS type, NULL::text AS tenant,
       NULL::text AS aggregate_type, NULL::text AS aggregate_id, last AS sequence,
       NULL::text AS payload, NULL::text AS headers, NULL::timestamptz AS created_at,
       NULL::timestamptz AS available_at, hapax.history() AS history
FROM looked
UNION ALL
(SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
        created_at, available_at, NULL
 FROM (
     SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
            created_at, available_at,
            sum(bytes) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - bytes AS before
     FROM (
         SELECT event.id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
                headers, created_at, available_at,
                octet_length(payload) + octet_length(headers)
                    + octet_length(concat(type, tenant, aggregate_type, aggregate_id)) AS bytes
         FROM others
         JOIN hapax.outbox_event_0 AS event ON event.id = others.id
     ) AS sized
 ) AS found
 WHERE before <= $4::int8
 ORDER BY id)
