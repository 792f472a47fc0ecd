-- Counts the attempts at one delivery that were cut off while their owner lived on: it has given a sign
-- of life since another node took the part.
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
