-- Makes a dead letter due again, with no attempts counted.
UPDATE hapax_delivery SET
    state = 'retrying',
    attempt = 0,
    next_at = ?3,
    begun_at = NULL,
    changed_at = ?3,
    manual = 1
WHERE destination = ?1 AND position = ?2 AND state = 'dead'
