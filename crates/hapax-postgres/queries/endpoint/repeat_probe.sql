-- Makes the probe of an endpoint ($1) at a version ($2) due at once: it could not send its event. It is not
-- counted.
UPDATE hapax.endpoint
SET probe_at = least(probe_at, now.at)
FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS at) AS now
WHERE id = $1::text AND version = $2::int8 AND probe_at IS NOT NULL AND deleted_at IS NULL
RETURNING id
