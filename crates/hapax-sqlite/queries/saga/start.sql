-- Starts a saga, due at once; the id is the service's own, so one that stands is left alone. The key
-- of the request that starts it stands as long as the saga lives.
INSERT INTO hapax_saga
    (id, name, version, tenant, input, headers, state, deadline_at, wake_at, created_at, key_tenant,
     key_operation, key)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', ?7, ?8, ?8, ?9, ?10, ?11)
ON CONFLICT (id) DO NOTHING
