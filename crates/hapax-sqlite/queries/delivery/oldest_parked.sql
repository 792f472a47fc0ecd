-- Finds when the first of the parked deliveries of a partition (?1) became due by a time (?2), among
-- the first 100. Deliveries that wait for their time do not count.
-- Only here: the PostgreSQL store computes the backlog in one statement.
SELECT min(max(event.created_at, coalesce(event.available_at, event.created_at)))
FROM (
    SELECT position
    FROM hapax_delivery INDEXED BY hapax_delivery_parked
    WHERE destination = ?1 AND state IN ('scheduled', 'retrying', 'blocked')
      AND (state <> 'scheduled' OR next_at <= ?2)
    ORDER BY position
    LIMIT 100
) AS due
JOIN hapax_outbox_event AS event ON event.id = due.position
