-- Stores the response that an operator gives for a key in progress without an owner. The key is
-- kept as it is if its lease has not expired (?7 is the time), or if its row was written since the
-- operator read it (?4 to ?6 are its epoch, its creation time and the number of the transaction that
-- wrote it). The response is kept as long as the request asked for.
UPDATE hapax_idempotency_key SET
    state = ?8,
    lease_until = NULL,
    request = NULL,
    response_status = ?9,
    response_headers = ?10,
    response_body = ?11,
    resource_id = ?12,
    completed_at = ?7,
    expires_at = ?7 + (expires_at - created_at),
    xid = -1 - abs(random() / 2)
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND state = 'in_progress'
  AND coalesce(lease_until, created_at) <= ?7
  AND epoch = ?4 AND created_at = ?5 AND coalesce(xid, 0) = ?6
