-- Stores the response of a phased request, for the owner only. The stored request is deleted,
-- because it is no longer needed. A transaction without events (?12) has a random negative number.
UPDATE hapax_idempotency_key SET
    state = ?6,
    lease_until = NULL,
    request = NULL,
    response_status = ?7,
    response_headers = ?8,
    response_body = ?9,
    resource_id = ?13,
    completed_at = ?10,
    expires_at = ?11,
    xid = coalesce(?12, -1 - abs(random() / 2))
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
  AND epoch = ?4 AND created_at = ?5 AND state = 'in_progress'
