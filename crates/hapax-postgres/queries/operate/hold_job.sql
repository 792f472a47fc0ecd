-- Takes hold of the job that is due longest and that nobody works on; the row's lock is its lease,
-- and ends with the transaction or with its connection.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT id, kind, destination, tenant, arguments, state, part, position, total, done, per_second,
       next_at, failures, error, actor, request_key, created_at, started_at, ended_at
FROM hapax.job
WHERE state IN ('waiting', 'running') AND next_at <= clock_timestamp()
ORDER BY next_at, id
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED
