-- Deletes an endpoint ($2) of a tenant ($1), at a version ($3). The row stays without its content.
UPDATE hapax.endpoint
SET url = '',
    description = '',
    types = '[]',
    filter = NULL,
    mapping = NULL,
    headers = '[]',
    sealed = NULL,
    previous_until = NULL,
    probe_at = NULL,
    changed_by = $4::text,
    changed_at = now.at,
    deleted_at = now.at,
    version = $3::int8
FROM (SELECT coalesce($5::timestamptz, clock_timestamp()) AS at) AS now
WHERE tenant = $1::text AND id = $2::text AND deleted_at IS NULL
RETURNING id
