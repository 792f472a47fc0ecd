-- Changes a destination, if it still has the given version.
UPDATE hapax.declaration SET
    spec = $3::text,
    sealed = $4::bytea,
    version = nextval('hapax.declaration_version'),
    changed_at = clock_timestamp(),
    changed_by = $5::text
WHERE name = $1::text AND version = $2::int8 AND spec IS NOT NULL AND removed_at IS NULL
RETURNING name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
          removed_at, purged_at
