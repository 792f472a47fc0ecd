-- Finds when the first of the parked deliveries of a partition (?1) became due by a time (?2), among
-- the first 100 that are due, and the first 100 that have failed or are blocked among the first
-- 100,000. Deliveries that wait for their time do not count.
-- Only here: the PostgreSQL store computes the backlog in one statement.
SELECT min(max(event.created_at, coalesce(event.available_at, event.created_at)))
FROM (
    SELECT position
    FROM (
        SELECT position
        FROM hapax_delivery INDEXED BY hapax_delivery_due
        WHERE destination = ?1 AND state IN ('scheduled', 'retrying') AND next_at <= ?2
        ORDER BY next_at, position
        LIMIT 100
    )
    UNION ALL
    SELECT position
    FROM (
        SELECT position
        FROM (
            SELECT position, state
            FROM hapax_delivery INDEXED BY hapax_delivery_parked
            WHERE destination = ?1 AND state IN ('scheduled', 'retrying', 'blocked')
            ORDER BY position
            LIMIT 100000
        )
        WHERE state <> 'scheduled'
        LIMIT 100
    )
) AS due
JOIN hapax_outbox_event AS event ON event.id = due.position
