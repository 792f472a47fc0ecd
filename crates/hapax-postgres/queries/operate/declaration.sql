-- Reads what is declared about one destination, removed ones included.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
       removed_at, purged_at
FROM hapax.declaration
WHERE name = $1::text
