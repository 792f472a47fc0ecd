-- Changes an endpoint ($2) of a tenant ($1) that is at a version ($3), to another version ($4). $13 says
-- whether its failures are counted from the beginning, as they are if the URL changes. $16 says whether a
-- person disables it, so that it is not probed. Another URL is probed at once.
UPDATE hapax.endpoint
SET url = $5::text,
    description = $6::text,
    types = $7::text,
    filter = $8::text,
    headers = $9::text,
    payload_mode = $17::text,
    mapping = $18::text,
    sealed = $10::bytea,
    previous_until = $11::timestamptz,
    disabled_reason = $12::text,
    disabled_at = CASE WHEN $12::text IS NOT NULL THEN coalesce(disabled_at, now.at) END,
    failures = CASE WHEN $13::bool OR url <> $5::text THEN 0 ELSE failures END,
    failing_since = CASE WHEN $13::bool OR url <> $5::text THEN NULL ELSE failing_since END,
    failing_spans = CASE WHEN $13::bool OR url <> $5::text THEN 0 ELSE failing_spans END,
    failing_span_at = CASE WHEN $13::bool OR url <> $5::text THEN NULL ELSE failing_span_at END,
    slow_until = CASE WHEN $13::bool OR url <> $5::text THEN NULL ELSE slow_until END,
    last_error = CASE WHEN $13::bool OR url <> $5::text THEN NULL ELSE last_error END,
    probe_at = CASE WHEN $12::text IS NULL OR $16::bool OR probe_at IS NULL THEN NULL
                    WHEN url <> $5::text THEN least(probe_at, now.at)
                    ELSE probe_at END,
    probes = CASE WHEN $12::text IS NULL OR $16::bool OR url <> $5::text THEN 0 ELSE probes END,
    changed_at = now.at,
    changed_by = $14::text,
    version = $4::int8
FROM (SELECT coalesce($15::timestamptz, clock_timestamp()) AS at) AS now
WHERE tenant = $1::text AND id = $2::text AND version = $3::int8 AND deleted_at IS NULL
RETURNING id, tenant, url, description, types, filter, headers, sealed, previous_until, disabled_reason,
          disabled_at, failures, failing_since, slow_until, last_error, probe_at, probes, created_at,
          created_by, changed_at, changed_by, version, payload_mode, mapping
