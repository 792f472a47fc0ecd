-- Counts, for these deliveries, the interrupted attempts whose owner was still alive: it has sent a
-- heartbeat, or a sign that it ends, since another node took the partition.
SELECT attempt.position, count(*)
FROM hapax.attempt AS attempt
WHERE attempt.position = ANY ($2::int8[])
  AND attempt.destination = $1::text
  AND attempt.owner IS NOT NULL
  AND EXISTS (
      SELECT 1
      FROM hapax.heartbeat AS heartbeat
      WHERE heartbeat.node = attempt.owner AND heartbeat.number > attempt.owner_heartbeat
  )
GROUP BY attempt.position
