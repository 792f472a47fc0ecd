-- Reads the declarations that changed after a version. A relay that builds destinations from their
-- declarations runs this once a second, and mostly gets no rows.
SELECT name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
       removed_at, purged_at
FROM hapax_declaration
WHERE version > ?1
ORDER BY version
