-- Deletes an endpoint (?2) of a tenant (?1), at a version (?3). The row stays without its content.
UPDATE hapax_endpoint
SET url = '',
    description = '',
    types = '[]',
    filter = NULL,
    mapping = NULL,
    headers = '[]',
    sealed = NULL,
    previous_until = NULL,
    probe_at = NULL,
    changed_by = ?4,
    changed_at = ?5,
    deleted_at = ?5,
    version = ?3
WHERE tenant = ?1 AND id = ?2 AND deleted_at IS NULL
RETURNING id
