-- Has what was parked to be tried again while the clock was ahead of ?2 fall due now (?1): nobody knows
-- what moment was meant. What is to be delivered later was said by whoever emitted it.
-- Only here: the other store goes by the clock of its server.
UPDATE hapax_delivery INDEXED BY hapax_delivery_due SET
    next_at = ?1,
    changed_at = ?1
WHERE state IN ('scheduled', 'retrying')
  AND state = 'retrying'
  AND next_at > ?1
  AND changed_at > ?2
