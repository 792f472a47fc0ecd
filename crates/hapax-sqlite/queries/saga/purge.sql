-- Deletes a batch of sagas that ended long ago.
DELETE FROM hapax_saga
WHERE id IN (
    SELECT id
    FROM hapax_saga
    WHERE ended_at <= ?1
    ORDER BY ended_at
    LIMIT ?2
)
RETURNING id
