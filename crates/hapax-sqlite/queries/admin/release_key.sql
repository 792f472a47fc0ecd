-- Frees a key in progress without an owner at an operator's request, because its request had no
-- effect. The key is kept under the same conditions as in complete_key.sql.
DELETE FROM hapax_idempotency_key
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND state = 'in_progress'
  AND coalesce(lease_until, created_at) <= ?7
  AND epoch = ?4 AND created_at = ?5 AND coalesce(xid, 0) = ?6
