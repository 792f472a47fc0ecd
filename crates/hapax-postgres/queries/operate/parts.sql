-- The parts of a destination that were ever opened, or those of all destinations.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT name, disabled_at, disabled_reason
FROM hapax.destination
WHERE $1::text IS NULL OR split_part(name, '/', 1) = $1::text
ORDER BY name
