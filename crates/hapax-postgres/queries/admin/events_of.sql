-- Finds the events of one request between two positions ($1, $2): those that have the short hash of
-- its key ($4) in a header, and those without a key that one transaction wrote ($5), because one
-- transaction may commit many requests. It visits at most $3 events. $5 is the low half of the
-- transaction's number, which is what rows of other tables contain. The high half is the current
-- one or the one before it, so that whole numbers are compared. Every row contains the number of
-- visited events; if there are no events, one row contains only that.
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
       event.available_at, event.xid::text::int8 AS transaction, counted.number AS looked
FROM (SELECT count(*) AS number FROM looked) AS counted
LEFT JOIN (
    SELECT id FROM looked WHERE fits ORDER BY id LIMIT $7::int8
) AS found ON true
LEFT JOIN hapax.outbox_event AS event
    ON event.id = found.id AND event.segment IN (((found.id >> 36) & 7)::int2, -1)
ORDER BY event.id
