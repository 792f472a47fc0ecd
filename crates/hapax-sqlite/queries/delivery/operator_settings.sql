-- Reads what operators have set for destinations since a version. Every relay runs this twice a
-- second, and mostly gets no rows.
SELECT name, version,
       paused_at IS NOT NULL OR coalesce(json_type(spec, '$.paused') = 'true', 0) AS is_paused,
       removed_at IS NOT NULL AS is_removed
FROM hapax_declaration
WHERE version > ?1
ORDER BY version
