-- Reads what operators have set for destinations since a version. Every relay runs this twice a
-- second, and mostly gets no rows.
SELECT name, version, spec, paused_at IS NOT NULL AS is_paused, removed_at IS NOT NULL AS is_removed
FROM hapax_declaration
WHERE version > ?1
ORDER BY version
