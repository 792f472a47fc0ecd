-- Writes the recovery point of a phase in the transaction of its rows, for the owner only. If the
-- owner is fenced, no row changes, and the phase is rolled back. A transaction without events (?7)
-- has a random negative number.
UPDATE hapax_idempotency_key SET
    recovery_point = coalesce(?6, recovery_point),
    xid = coalesce(?7, -1 - abs(random() / 2))
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
  AND epoch = ?4 AND created_at = ?5 AND state = 'in_progress'
