-- Lists what nodes know that gave a sign of life since ?1, a line for each destination.
-- Only here: the other store notes absences in a function of its schema.
SELECT knows
FROM hapax_node
WHERE seen_at > ?1 AND knows IS NOT NULL
