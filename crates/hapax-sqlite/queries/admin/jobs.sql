-- Lists jobs, the newest first.
SELECT id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
       failures, error, actor, created_at, started_at, ended_at
FROM hapax_job
WHERE id < ?1
  AND (?2 IS NULL OR tenant = ?2)
  AND (?3 IS NULL OR destination = ?3)
  AND (?4 IS NULL OR state = ?4)
ORDER BY id DESC
LIMIT ?5
