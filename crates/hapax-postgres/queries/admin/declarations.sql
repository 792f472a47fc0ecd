-- Lists the declarations by name, without those that are removed and purged.
SELECT name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
       removed_at, purged_at
FROM hapax.declaration
WHERE purged_at IS NULL AND name > $1::text
  AND ($2::text IS NULL OR spec::jsonb ->> 'tenant' = $2::text)
ORDER BY name
LIMIT $3::int8
