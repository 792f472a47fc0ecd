-- Returns whether a node may take a partition: no other node owns it that sent a heartbeat or took
-- it after ?3. Times after ?4 are ignored, because the clock was set back since.
-- Only here: the PostgreSQL store checks it in the statement that takes the partition.
SELECT NOT EXISTS (
    SELECT 1
    FROM hapax_checkpoint
    LEFT JOIN hapax_node ON hapax_node.name = hapax_checkpoint.node
    WHERE destination = ?1
      AND node <> ?2
      AND (taken_at > ?3 AND taken_at < ?4 OR seen_at > ?3 AND seen_at < ?4)
)
