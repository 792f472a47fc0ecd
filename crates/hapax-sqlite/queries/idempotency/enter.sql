-- Enters a key that stands for nothing: whatever row is there has expired and gives way, and its
-- epoch goes on, so that no owner of that row is taken for an owner of this one.
INSERT INTO hapax_idempotency_key
    (tenant, operation, key, fingerprint, state, epoch, lease_until, request, on_expired,
     created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, 'in_progress', 1, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (tenant, operation, key) DO UPDATE SET
    fingerprint = excluded.fingerprint,
    state = excluded.state,
    epoch = epoch + 1,
    lease_until = excluded.lease_until,
    recovery_point = NULL,
    request = excluded.request,
    response_status = NULL,
    response_headers = NULL,
    response_body = NULL,
    resource_id = NULL,
    on_expired = excluded.on_expired,
    created_at = excluded.created_at,
    completed_at = NULL,
    expires_at = excluded.expires_at
RETURNING epoch
