-- Counts the interrupted attempts at one delivery whose owner was still alive: it has sent a
-- heartbeat since another node took the partition.
SELECT count(*)
FROM hapax_attempt
WHERE position = ?1
  AND destination = ?2
  AND owner IS NOT NULL
  AND EXISTS (
      SELECT 1
      FROM hapax_node
      WHERE hapax_node.name = hapax_attempt.owner
        AND hapax_node.seen_at > hapax_attempt.owner_seen_at
  )
