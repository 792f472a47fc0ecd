-- Marks a parked delivery as delivered.
UPDATE hapax_delivery SET
    state = 'delivered',
    begun_at = NULL,
    changed_at = ?3
WHERE destination = ?1 AND position = ?2
