-- Disables an endpoint ($1) with a reason ($2) that is enabled and at a version ($6), to another version
-- ($3). It is probed after $7 milliseconds, unless that is null. Returns its tenant.
UPDATE hapax.endpoint
SET disabled_reason = $2::text,
    disabled_at = now.at,
    probe_at = now.at + $7::int8 * interval '1 millisecond',
    probes = 0,
    catch_up_at = NULL,
    changed_at = now.at,
    changed_by = $4::text,
    version = $3::int8
FROM (SELECT coalesce($5::timestamptz, clock_timestamp()) AS at) AS now
WHERE id = $1::text AND version = $6::int8 AND disabled_reason IS NULL AND deleted_at IS NULL
RETURNING tenant
