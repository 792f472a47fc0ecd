-- Creates an endpoint.
INSERT INTO hapax.endpoint
    (id, tenant, url, description, types, filter, headers, sealed, previous_until, disabled_reason,
     disabled_at, created_at, created_by, changed_at, changed_by, version,
     payload_mode, mapping)
SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::bytea,
       $9::timestamptz, $10::text, CASE WHEN $10::text IS NOT NULL THEN now.at END, now.at, $12::text,
       now.at, $12::text, $13::int8,
       $14::text, $15::text
FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS at) AS now
ON CONFLICT (id) DO NOTHING
RETURNING id, tenant, url, description, types, filter, headers, sealed, previous_until, disabled_reason,
          disabled_at, failures, failing_since, slow_until, last_error, probe_at, probes, created_at,
          created_by, changed_at, changed_by, version, payload_mode, mapping
