-- Makes the probe of an endpoint (?1) at a version (?2) due at once: it could not send its event. It is not
-- counted.
UPDATE hapax_endpoint
SET probe_at = min(probe_at, ?3)
WHERE id = ?1 AND version = ?2 AND probe_at IS NOT NULL AND deleted_at IS NULL
RETURNING id
