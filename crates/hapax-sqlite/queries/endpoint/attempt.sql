-- Appends an attempt to the log, with the tenant of its endpoint. One that is recorded again exists
-- already.
INSERT INTO hapax_endpoint_attempt
    (endpoint, tenant, position, event_id, type, number, started_at, duration_ms, outcome, status,
     error, request, response, is_encrypted)
SELECT id, tenant, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13
FROM hapax_endpoint
WHERE id = ?1 AND deleted_at IS NULL
ON CONFLICT (endpoint, event_id, number, started_at) DO NOTHING
