-- Discards a dead letter, and returns the order key that it blocked.
UPDATE hapax_delivery SET
    state = 'discarded',
    reason = ?4,
    changed_at = ?3
WHERE destination = ?1 AND position = ?2 AND state = 'dead'
RETURNING order_key
