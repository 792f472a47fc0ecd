-- Lets a key go that its owner has made nothing of.
DELETE FROM hapax_idempotency_key
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
  AND epoch = ?4 AND created_at = ?5 AND state = 'in_progress'
