-- Changes an endpoint (?2) of a tenant (?1) that is at a version (?3), to another version (?4). ?13 says
-- whether its failures are counted from the beginning, as they are if the URL changes. ?16 says whether a
-- person disables it, so that it is not probed. Another URL is probed at once.
UPDATE hapax_endpoint
SET url = ?5,
    description = ?6,
    types = ?7,
    filter = ?8,
    headers = ?9,
    payload_mode = ?17,
    mapping = ?18,
    sealed = ?10,
    previous_until = ?11,
    disabled_reason = ?12,
    disabled_at = CASE WHEN ?12 IS NOT NULL THEN coalesce(disabled_at, ?15) END,
    failures = CASE WHEN ?13 OR url <> ?5 THEN 0 ELSE failures END,
    failing_since = CASE WHEN ?13 OR url <> ?5 THEN NULL ELSE failing_since END,
    failing_spans = CASE WHEN ?13 OR url <> ?5 THEN 0 ELSE failing_spans END,
    failing_span_at = CASE WHEN ?13 OR url <> ?5 THEN NULL ELSE failing_span_at END,
    slow_until = CASE WHEN ?13 OR url <> ?5 THEN NULL ELSE slow_until END,
    last_error = CASE WHEN ?13 OR url <> ?5 THEN NULL ELSE last_error END,
    probe_at = CASE WHEN ?12 IS NULL OR ?16 OR probe_at IS NULL THEN NULL
                    WHEN url <> ?5 THEN min(probe_at, ?15)
                    ELSE probe_at END,
    probes = CASE WHEN ?12 IS NULL OR ?16 OR url <> ?5 THEN 0 ELSE probes END,
    changed_at = ?15,
    changed_by = ?14,
    version = ?4
WHERE tenant = ?1 AND id = ?2 AND version = ?3 AND deleted_at IS NULL
RETURNING id, tenant, url, description, types, filter, headers, sealed, previous_until, disabled_reason,
          disabled_at, failures, failing_since, slow_until, last_error, probe_at, probes, created_at,
          created_by, changed_at, changed_by, version, payload_mode, mapping
