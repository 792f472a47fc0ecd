-- Starts a saga, due at once; the id is the service's own, so one that stands is left alone.
INSERT INTO hapax_saga
    (id, name, version, tenant, input, headers, state, deadline_at, wake_at, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', ?7, ?8, ?8)
ON CONFLICT (id) DO NOTHING
