-- Gives a dead letter up for good, and says which key it held up.
UPDATE hapax_delivery SET
    state = 'discarded',
    reason = ?4,
    changed_at = ?3
WHERE destination = ?1 AND position = ?2 AND state = 'dead'
RETURNING order_key
