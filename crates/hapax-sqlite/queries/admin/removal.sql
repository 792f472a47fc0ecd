-- Reads the last removal (?2) of a destination.
-- Only here: the PostgreSQL store finds it in the list of jobs.
SELECT id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
       failures, error, actor, created_at, started_at, ended_at
FROM hapax_job
WHERE id = (
    SELECT max(id) FROM hapax_job WHERE destination = ?1 AND kind = ?2
)
