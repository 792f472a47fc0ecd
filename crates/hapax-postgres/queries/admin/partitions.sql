-- Lists the partitions that were ever opened, of one destination or of all.
-- Only here: the SQLite store belongs to one process, and has no admin API.
SELECT name, disabled_at, disabled_reason
FROM hapax.destination
WHERE $1::text IS NULL OR split_part(name, '/', 1) = $1::text
ORDER BY name
