-- Declares a destination whose name is free: it was never declared, or was removed and purged. A
-- paused destination of a configuration file stays paused.
INSERT INTO hapax.declaration AS old
    (name, spec, sealed, version, created_at, changed_at, changed_by)
VALUES ($1::text, $2::text, $3::bytea, nextval('hapax.declaration_version'), clock_timestamp(),
        clock_timestamp(), $4::text)
ON CONFLICT (name) DO UPDATE SET
    spec = excluded.spec,
    sealed = excluded.sealed,
    version = excluded.version,
    created_at = excluded.created_at,
    changed_at = excluded.changed_at,
    changed_by = excluded.changed_by,
    paused_at = CASE WHEN old.removed_at IS NULL THEN old.paused_at END,
    paused_by = CASE WHEN old.removed_at IS NULL THEN old.paused_by END,
    removed_at = NULL,
    purged_at = NULL
WHERE old.purged_at IS NOT NULL OR (old.spec IS NULL AND old.removed_at IS NULL)
RETURNING name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
          removed_at, purged_at
