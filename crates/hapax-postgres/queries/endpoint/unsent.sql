-- Lists events of a tenant ($1) that an endpoint ($2) never got, because they have neither a delivery nor an
-- attempt: created at a time ($3) or later and before another ($4), with an id of at least $5 and before
-- another ($6), at most $8, of the next $7 events. Each row contains the id of the last of those, if there
-- are as many; if none is listed, one row contains only that.
WITH looked AS MATERIALIZED (
    SELECT id, event_id, tenant, created_at
    FROM hapax.outbox_event
    WHERE id >= $5::int8 AND id < $6::int8
    ORDER BY id
    LIMIT $7::int8
), found AS MATERIALIZED (
    SELECT looked.id
    FROM looked
    WHERE looked.tenant = $1::text
      AND looked.created_at >= $3::timestamptz
      AND looked.created_at < $4::timestamptz
      AND NOT EXISTS (
          SELECT 1
          FROM hapax.endpoint_delivery AS delivery
          WHERE delivery.endpoint = $2::text AND delivery.event_id = looked.event_id
      )
      AND NOT EXISTS (
          SELECT 1
          FROM hapax.endpoint_attempt AS attempt
          WHERE attempt.endpoint = $2::text AND attempt.event_id = looked.event_id
      )
    ORDER BY looked.id
    LIMIT $8::int8
)
SELECT scan.until, event.id, event.event_id::text AS event_id, event.type, event.tenant,
       event.aggregate_type, event.aggregate_id, event.sequence, event.payload, event.headers,
       event.created_at, event.available_at
FROM (
    SELECT CASE WHEN count(*) >= $7::int8 THEN max(looked.id) END AS until FROM looked
) AS scan
LEFT JOIN found ON true
LEFT JOIN hapax.outbox_event AS event
    ON event.id = found.id AND event.segment IN ((found.id >> 36 & 7)::int2, -1::int2)
ORDER BY event.id
