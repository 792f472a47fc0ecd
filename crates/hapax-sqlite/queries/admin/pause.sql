-- Pauses a destination that is not paused. A destination that is not declared here gets a row.
INSERT INTO hapax_declaration AS old
    (name, version, created_at, changed_at, changed_by, paused_at, paused_by)
VALUES (?1, (SELECT 1 + coalesce(max(version), 0) FROM hapax_declaration), ?3, ?3, ?2, ?3, ?2)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version,
    changed_at = excluded.changed_at,
    changed_by = excluded.changed_by,
    paused_at = excluded.paused_at,
    paused_by = excluded.paused_by
WHERE old.paused_at IS NULL AND old.removed_at IS NULL
