-- Pauses a destination that is not paused. A destination of a configuration file gets a row.
INSERT INTO hapax.declaration AS old
    (name, version, created_at, changed_at, changed_by, paused_at, paused_by)
VALUES ($1::text, nextval('hapax.declaration_version'), clock_timestamp(), clock_timestamp(),
        $2::text, clock_timestamp(), $2::text)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version,
    changed_at = excluded.changed_at,
    changed_by = excluded.changed_by,
    paused_at = excluded.paused_at,
    paused_by = excluded.paused_by
WHERE old.paused_at IS NULL AND old.removed_at IS NULL
RETURNING 1
