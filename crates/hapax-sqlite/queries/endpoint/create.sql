-- Creates an endpoint.
INSERT INTO hapax_endpoint
    (id, tenant, url, description, types, filter, headers, sealed, previous_until, disabled_reason,
     disabled_at, created_at, created_by, changed_at, changed_by, version,
     payload_mode, mapping)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, CASE WHEN ?10 IS NOT NULL THEN ?11 END, ?11, ?12, ?11,
        ?12, ?13, ?14, ?15)
ON CONFLICT (id) DO NOTHING
RETURNING id, tenant, url, description, types, filter, headers, sealed, previous_until, disabled_reason,
          disabled_at, failures, failing_since, slow_until, last_error, probe_at, probes, created_at,
          created_by, changed_at, changed_by, version, payload_mode, mapping
