-- Has the lease of a key count anew, for the owner alone: no row changes for a fenced one.
UPDATE hapax_idempotency_key SET
    lease_until = ?6
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
  AND epoch = ?4 AND created_at = ?5 AND state = 'in_progress'
