-- Reads the job that an actor requested with a key.
SELECT id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
       failures, error, actor, created_at, started_at, ended_at
FROM hapax_job
WHERE actor = ?1 AND request_key = ?2
