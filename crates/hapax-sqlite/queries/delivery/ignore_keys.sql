-- Lets what a part has parked between two positions (?2, ?3) go that is blocked: it falls due now (?4)
-- without its key, for a destination that keeps no order.
UPDATE hapax_delivery SET
    state = 'retrying',
    next_at = ?4,
    order_key = NULL,
    changed_at = ?4
WHERE destination = ?1
  AND position > ?2
  AND position <= ?3
  AND state = 'blocked'
