-- Counts a probe of an endpoint (?1) at a version (?2) that has failed. The next one is due after ?3
-- milliseconds, doubled for each that has failed and at most ?4; if ?3 is null, there is none.
UPDATE hapax_endpoint
SET probes = min(probes, 1000000000) + 1,
    probe_at = CASE WHEN ?3 IS NOT NULL THEN ?5 + min(?4, ?3 << min(probes + 1, 20)) END
WHERE id = ?1 AND version = ?2 AND probe_at IS NOT NULL AND deleted_at IS NULL
RETURNING id
