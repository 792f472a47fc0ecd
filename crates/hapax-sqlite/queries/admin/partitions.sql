-- Lists the partitions that were ever opened, of one destination or of all.
SELECT name, disabled_at, disabled_reason
FROM hapax_destination
WHERE ?1 IS NULL OR substr(name, 1, instr(name || '/', '/') - 1) = ?1
ORDER BY name
