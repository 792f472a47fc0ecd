-- Turns an expired key into a tombstone: the fact that it was used stays, the answer goes.
-- Only here: the other store does all of a purge in one statement.
UPDATE hapax_idempotency_key SET
    state = 'tombstone',
    response_status = NULL,
    response_headers = NULL,
    response_body = NULL,
    resource_id = NULL,
    expires_at = ?2
WHERE rowid = ?1
