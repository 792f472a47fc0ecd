-- Counts the events after a position ($1) by type, of one tenant ($2) or of all, among the next $3 events.
-- Each row has the number of events that were looked at; without an event one row contains only that.
WITH looked AS MATERIALIZED (
    SELECT type, tenant, created_at
    FROM hapax.outbox_event
    WHERE id > $1::int8
    ORDER BY id
    LIMIT $3::int8
)
SELECT scan.looked, own.type, own.number, own.oldest_at
FROM (SELECT count(*) AS looked FROM looked) AS scan
LEFT JOIN (
    SELECT type, count(*) AS number, min(created_at) AS oldest_at
    FROM looked
    WHERE $2::text IS NULL OR tenant = $2::text
    GROUP BY type
) AS own ON true
