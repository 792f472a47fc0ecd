-- Stores the response in the only write of the row. The single writer has owned the key since the
-- claim, so a row that exists now has expired and is overwritten. A transaction without events (?13)
-- has a random negative number.
INSERT INTO hapax_idempotency_key
    (tenant, operation, key, fingerprint, state, epoch, response_status, response_headers,
     response_body, on_expired, created_at, completed_at, expires_at, xid, resource_id)
VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?8, ?9, ?10, ?11, ?12,
        coalesce(?13, -1 - abs(random() / 2)), ?14)
ON CONFLICT (tenant, operation, key) DO UPDATE SET
    fingerprint = excluded.fingerprint,
    state = excluded.state,
    epoch = epoch + 1,
    lease_until = NULL,
    recovery_point = NULL,
    response_status = excluded.response_status,
    response_headers = excluded.response_headers,
    response_body = excluded.response_body,
    resource_id = excluded.resource_id,
    on_expired = excluded.on_expired,
    created_at = excluded.created_at,
    completed_at = excluded.completed_at,
    expires_at = excluded.expires_at,
    xid = excluded.xid
