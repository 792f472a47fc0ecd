-- Claims and completes a key in one statement. If the key is taken, no row changes, and the key is
-- read afterwards. A transaction without events (?13) has a random negative number.
-- Only here: the PostgreSQL store claims whole groups at once.
INSERT INTO hapax_idempotency_key
    (tenant, operation, key, fingerprint, state, epoch, response_status, response_headers,
     response_body, on_expired, created_at, completed_at, expires_at, xid, resource_id)
VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?8, ?9, ?10, ?11, ?12,
        coalesce(?13, -1 - abs(random() / 2)), ?14)
ON CONFLICT (tenant, operation, key) DO NOTHING
