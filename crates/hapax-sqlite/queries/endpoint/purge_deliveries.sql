-- Deletes deliveries that ended before a time (?1), at most ?2.
DELETE FROM hapax_endpoint_delivery
WHERE id IN (
    SELECT id
    FROM hapax_endpoint_delivery
    WHERE state <> 'waiting' AND ended_at < ?1
    ORDER BY ended_at
    LIMIT ?2
)
