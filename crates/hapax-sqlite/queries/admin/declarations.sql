-- Lists the declarations by name, without those that are removed and purged. The caller filters by
-- tenant and stops when it has enough: of members with one name SQLite reads the first, and all other
-- readers the last.
SELECT name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
       removed_at, purged_at
FROM hapax_declaration
WHERE purged_at IS NULL AND name > ?1
ORDER BY name
