-- Marks a destination as removed: relays give it up, and no relay opens it again.
INSERT INTO hapax_declaration AS old
    (name, version, created_at, changed_at, changed_by, removed_at)
VALUES (?1, (SELECT 1 + coalesce(max(version), 0) FROM hapax_declaration), ?3, ?3, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version,
    changed_at = excluded.changed_at,
    changed_by = excluded.changed_by,
    sealed = NULL,
    removed_at = excluded.removed_at
WHERE old.removed_at IS NULL
