-- Reads what operators have set for destinations since a version. A relay runs this when a
-- heartbeat has reported a newer version.
SELECT name, version,
       paused_at IS NOT NULL OR coalesce(spec::jsonb -> 'paused' = 'true', false) AS is_paused,
       removed_at IS NOT NULL AS is_removed
FROM hapax.declaration
WHERE version > $1::int8
ORDER BY version
