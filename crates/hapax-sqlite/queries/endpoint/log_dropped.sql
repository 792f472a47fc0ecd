-- Appends a delivery that was ended without an attempt to the log of attempts (?1 to ?5), at a time (?6)
-- with a reason (?7).
-- Only here: the PostgreSQL store ends deliveries and logs them in one statement.
INSERT INTO hapax_endpoint_attempt
    (endpoint, tenant, position, event_id, type, number, started_at, duration_ms, outcome, error, request,
     response, is_encrypted)
SELECT id, tenant, ?2, ?3, ?4, ?5, ?6, 0, 'dropped', ?7, x'', x'', 0
FROM hapax_endpoint
WHERE id = ?1
ON CONFLICT (endpoint, event_id, number, started_at) DO NOTHING
