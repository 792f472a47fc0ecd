-- Turns an expired key into a tombstone: the key still counts as used, but its response is deleted.
-- Only here: the PostgreSQL store does a whole purge in one statement.
UPDATE hapax_idempotency_key SET
    state = 'tombstone',
    response_status = NULL,
    response_headers = NULL,
    response_body = NULL,
    resource_id = NULL,
    expires_at = ?2
WHERE rowid = ?1
