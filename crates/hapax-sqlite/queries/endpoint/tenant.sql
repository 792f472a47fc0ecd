-- Reads the tenant of an endpoint (?1), if it is one of a tenant (?2) or if all may be read.
SELECT tenant
FROM hapax_endpoint
WHERE id = ?1 AND deleted_at IS NULL AND (?2 IS NULL OR tenant = ?2)
