-- Changes a destination, if it still has the given version.
UPDATE hapax_declaration SET
    spec = ?3,
    sealed = ?4,
    version = (SELECT 1 + max(version) FROM hapax_declaration),
    changed_at = ?6,
    changed_by = ?5
WHERE name = ?1 AND version = ?2 AND spec IS NOT NULL AND removed_at IS NULL
RETURNING name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
          removed_at, purged_at
