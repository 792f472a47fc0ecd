-- Reads what operators have set for destinations since a version. Every relay runs this twice a
-- second, and mostly gets no rows.
SELECT name, version,
       paused_at IS NOT NULL OR coalesce(spec::jsonb -> 'paused' = 'true', false) AS is_paused,
       removed_at IS NOT NULL AS is_removed
FROM hapax.declaration
WHERE version > $1::int8
ORDER BY version
