-- Locks the job that has been due longest and that no other process is running. The row lock is the
-- job's lease, and ends with the transaction or the connection.
SELECT id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
       next_at, failures, error, actor, request_key, created_at, started_at, ended_at
FROM hapax.job
WHERE state IN ('waiting', 'running') AND next_at <= clock_timestamp()
ORDER BY next_at, id
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED
