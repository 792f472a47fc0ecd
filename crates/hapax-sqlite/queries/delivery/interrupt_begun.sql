-- Makes a parked delivery due again after its attempt was interrupted. The attempt stays counted.
UPDATE hapax_delivery SET
    state = 'retrying',
    next_at = ?3,
    begun_at = NULL,
    last_error = ?4,
    changed_at = ?3
WHERE destination = ?1 AND position = ?2
