-- Counts a probe of an endpoint ($1) at a version ($2) that has failed. The next one is due after $3
-- milliseconds, doubled for each that has failed and at most $4; if $3 is null, there is none.
UPDATE hapax.endpoint
SET probes = least(probes, 1000000000) + 1,
    probe_at = CASE WHEN $3::int8 IS NOT NULL THEN now.at
        + least($4::int8, $3::int8 << least(probes + 1, 20)) * interval '1 millisecond' END
FROM (SELECT coalesce($5::timestamptz, clock_timestamp()) AS at) AS now
WHERE id = $1::text AND version = $2::int8 AND probe_at IS NOT NULL AND deleted_at IS NULL
RETURNING id
