-- Resumes a destination that is paused or has a disabled partition. A destination of a
-- configuration file gets a row. The new version makes the relays open it again, which enables it.
INSERT INTO hapax.declaration AS old (name, version, created_at, changed_at, changed_by)
SELECT $1::text, nextval('hapax.declaration_version'), clock_timestamp(), clock_timestamp(), $2::text
WHERE EXISTS (
    SELECT FROM hapax.declaration WHERE name = $1::text AND paused_at IS NOT NULL
) OR EXISTS (
    SELECT FROM hapax.destination
    WHERE split_part(name, '/', 1) = $1::text AND disabled_at IS NOT NULL
)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version,
    changed_at = excluded.changed_at,
    changed_by = excluded.changed_by,
    paused_at = NULL,
    paused_by = NULL
WHERE old.removed_at IS NULL
RETURNING 1
