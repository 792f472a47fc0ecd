-- Reads the tenant of an endpoint ($1), if it is one of a tenant ($2) or if all may be read.
SELECT tenant
FROM hapax.endpoint
WHERE id = $1::text AND deleted_at IS NULL AND ($2::text IS NULL OR tenant = $2::text)
