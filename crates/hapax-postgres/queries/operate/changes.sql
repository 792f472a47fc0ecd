-- Reads what was declared since a version: every relay asks once a second, and mostly for nothing.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT name, spec, sealed, version, created_at, changed_at, changed_by, paused_at, paused_by,
       removed_at, purged_at
FROM hapax.declaration
WHERE version > $1::int8
ORDER BY version
