-- Lists the declarations by name, without those that are removed and purged.
SELECT name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
       removed_at, purged_at
FROM hapax_declaration
WHERE purged_at IS NULL AND name > ?1
  AND (?2 IS NULL OR json_extract(spec, '$.tenant') = ?2)
ORDER BY name
LIMIT ?3
