-- Makes the blocked deliveries of a partition between two positions (?2, ?3) due now (?4) and
-- removes their order keys, for a destination that no longer keeps order.
UPDATE hapax_delivery SET
    state = 'retrying',
    next_at = ?4,
    order_key = NULL,
    changed_at = ?4
WHERE destination = ?1
  AND position > ?2
  AND position <= ?3
  AND state = 'blocked'
