-- Marks a destination as removed: relays give it up, and no relay opens it again.
INSERT INTO hapax.declaration AS old
    (name, version, created_at, changed_at, changed_by, removed_at)
VALUES ($1::text, nextval('hapax.declaration_version'), clock_timestamp(), clock_timestamp(),
        $2::text, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version,
    changed_at = excluded.changed_at,
    changed_by = excluded.changed_by,
    sealed = NULL,
    removed_at = excluded.removed_at
WHERE old.removed_at IS NULL
RETURNING 1
