-- Makes the next probe of an endpoint (?1) due at a time (?2), or ends the probes if that is null.
-- Only here: the PostgreSQL store finds and claims probes in one statement.
UPDATE hapax_endpoint
SET probe_at = ?2
WHERE id = ?1
