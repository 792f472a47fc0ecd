-- Counts the events after a position (?1) by type, of one tenant (?2) or of all, among the next ?3 events.
-- Each row has the number of events that were looked at; without an event one row contains only that.
WITH looked AS MATERIALIZED (
    SELECT type, tenant, created_at
    FROM hapax_outbox_event
    WHERE id > ?1
    ORDER BY id
    LIMIT ?3
)
SELECT scan.looked, own.type, own.number, own.oldest_at
FROM (SELECT count(*) AS looked FROM looked) AS scan
LEFT JOIN (
    SELECT type, count(*) AS number, min(created_at) AS oldest_at
    FROM looked
    WHERE ?2 IS NULL OR tenant = ?2
    GROUP BY type
) AS own ON true
