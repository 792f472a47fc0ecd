-- Reads the declaration of one destination, even if it is removed.
-- Only here: the SQLite store belongs to one process, and has no admin API.
SELECT name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
       removed_at, purged_at
FROM hapax.declaration
WHERE name = $1::text
