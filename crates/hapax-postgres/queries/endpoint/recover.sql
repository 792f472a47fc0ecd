-- Enables an endpoint ($1) that is probed and at a version ($2), to another version ($3). $4 says whether its
-- queue is delivered in the order of the events. Returns its tenant.
UPDATE hapax.endpoint
SET disabled_reason = NULL,
    disabled_at = NULL,
    failures = 0,
    failing_since = NULL,
    failing_spans = 0,
    failing_span_at = NULL,
    slow_until = NULL,
    last_error = NULL,
    probe_at = NULL,
    probes = 0,
    catch_up_at = CASE WHEN $4::bool THEN now.at END,
    changed_at = now.at,
    changed_by = $5::text,
    version = $3::int8
FROM (SELECT coalesce($6::timestamptz, clock_timestamp()) AS at) AS now
WHERE id = $1::text
  AND version = $2::int8
  AND disabled_reason IS NOT NULL
  AND probe_at IS NOT NULL
  AND deleted_at IS NULL
RETURNING tenant
