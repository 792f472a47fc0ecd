-- Resumes a destination that is paused or has a disabled partition. A destination that is not
-- declared here gets a row. The new version makes the relays open it again, which enables it.
INSERT INTO hapax_declaration AS old (name, version, created_at, changed_at, changed_by)
SELECT ?1, (SELECT 1 + coalesce(max(version), 0) FROM hapax_declaration), ?3, ?3, ?2
WHERE EXISTS (
    SELECT 1 FROM hapax_declaration WHERE name = ?1 AND paused_at IS NOT NULL
) OR EXISTS (
    SELECT 1
    FROM hapax_destination
    WHERE substr(name, 1, instr(name || '/', '/') - 1) = ?1 AND disabled_at IS NOT NULL
)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version,
    changed_at = excluded.changed_at,
    changed_by = excluded.changed_by,
    paused_at = NULL,
    paused_by = NULL
WHERE old.removed_at IS NULL
