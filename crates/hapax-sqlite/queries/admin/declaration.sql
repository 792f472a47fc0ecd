-- Reads the declaration of one destination, even if it is removed.
SELECT name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
       removed_at, purged_at
FROM hapax_declaration
WHERE name = ?1
