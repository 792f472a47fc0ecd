-- Finds the events of one request: those between two positions ($1, $2) that say its key's short hash
-- ($4) in a header, or that one transaction wrote ($5, the low half of its number, which is what rows
-- of other tables know) and that say no key's, for one transaction may commit many requests; looking
-- at so many ($3) and no more. The high half is that of now, or the one before: whole numbers are
-- compared at once. How many were looked at comes with every row, and alone when there are none.
-- Only here: the other store has one process, and nobody beside it who operates.
WITH wrote AS MATERIALIZED (
    SELECT (high << 32 | $5::int8)::text::xid8 AS now,
           (greatest(high - 1, 0) << 32 | $5::int8)::text::xid8 AS before
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8 >> 32 AS high) AS numbers
), looked AS MATERIALIZED (
    SELECT id,
           (coalesce(strpos(headers, $4::text) > 0, false)
            OR (xid = (SELECT now FROM wrote) OR xid = (SELECT before FROM wrote))
               AND strpos(headers, '"idempotency_key_hash"') = 0)
           AND ($6::text IS NULL OR tenant = $6::text) AS fits
    FROM hapax.outbox_event
    WHERE id >= $1::int8 AND id < $2::int8
    ORDER BY id
    LIMIT $3::int8
)
SELECT event.id, event.event_id::text, event.type, event.tenant, event.aggregate_type,
       event.aggregate_id, event.sequence, event.payload, event.headers, event.created_at,
       event.available_at, event.xid::text::int8, counted.number
FROM (SELECT count(*) AS number FROM looked) AS counted
LEFT JOIN (
    SELECT id FROM looked WHERE fits ORDER BY id LIMIT $7::int8
) AS found ON true
LEFT JOIN hapax.outbox_event AS event
    ON event.id = found.id AND event.segment IN (((found.id >> 36) & 7)::int2, -1)
ORDER BY event.id
