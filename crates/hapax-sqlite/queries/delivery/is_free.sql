-- Says whether a node may take a part: nobody else holds it that gave a sign of life, or took it,
-- since ?3. What lies beyond ?4 says nothing, for the clock was set back.
-- Only here: the other store finds it out as it takes.
SELECT NOT EXISTS (
    SELECT 1
    FROM hapax_checkpoint
    LEFT JOIN hapax_node ON hapax_node.name = hapax_checkpoint.node
    WHERE destination = ?1
      AND node <> ?2
      AND (taken_at > ?3 AND taken_at < ?4 OR seen_at > ?3 AND seen_at < ?4)
)
