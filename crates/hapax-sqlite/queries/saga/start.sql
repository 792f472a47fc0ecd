-- Starts a saga, which is due at once. The service chooses the id, so a saga that exists is left
-- alone. The key of the request that starts the saga is kept for as long as the saga runs.
INSERT INTO hapax_saga
    (id, name, version, tenant, input, headers, state, deadline_at, wake_at, created_at, key_tenant,
     key_operation, key)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', ?7, ?8, ?8, ?9, ?10, ?11)
ON CONFLICT (id) DO NOTHING
