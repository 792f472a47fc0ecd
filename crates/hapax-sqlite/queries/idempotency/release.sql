-- Frees a key that its owner has not completed.
DELETE FROM hapax_idempotency_key
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
  AND epoch = ?4 AND created_at = ?5 AND state = 'in_progress'
