-- Says which nodes live, each with the parts that it holds and what it knows: those that gave a sign
-- of life, or took a part, since ?1. What lies beyond ?2 says nothing, for the clock was set back.
SELECT living.name, held.destination, held.epoch,
       (SELECT knows FROM hapax_node WHERE name = living.name AND seen_at > ?1 AND seen_at < ?2)
FROM (
    SELECT name
    FROM hapax_node
    WHERE seen_at > ?1 AND seen_at < ?2
    UNION
    SELECT node
    FROM hapax_checkpoint
    WHERE node IS NOT NULL AND taken_at > ?1 AND taken_at < ?2
) AS living
LEFT JOIN hapax_checkpoint AS held ON held.node = living.name
ORDER BY living.name, held.destination
