-- Claims a key whose row has expired, for a phased request. The epoch continues, so that an owner
-- of the old row is not mistaken for the owner of the new one.
UPDATE hapax_idempotency_key SET
    fingerprint = ?4,
    state = 'in_progress',
    epoch = epoch + 1,
    lease_until = ?5,
    recovery_point = ?10,
    request = ?6,
    response_status = NULL,
    response_headers = NULL,
    response_body = NULL,
    resource_id = NULL,
    on_expired = ?7,
    created_at = ?8,
    completed_at = NULL,
    expires_at = ?9,
    xid = -1 - abs(random() / 2)
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
RETURNING epoch
