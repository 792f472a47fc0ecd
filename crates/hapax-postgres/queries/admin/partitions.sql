-- Lists the partitions that were ever opened, of one destination or of all.
SELECT name, disabled_at, disabled_reason
FROM hapax.destination
WHERE $1::text IS NULL OR split_part(name, '/', 1) = $1::text
ORDER BY name
