-- Renews the lease of a key, for the owner only. If the owner is fenced, no row changes.
UPDATE hapax_idempotency_key SET
    lease_until = ?6
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
  AND epoch = ?4 AND created_at = ?5 AND state = 'in_progress'
