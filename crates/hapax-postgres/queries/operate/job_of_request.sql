-- The job that an actor asked for under a key.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT id, kind, destination, tenant, arguments, state, part, position, total, done, per_second,
       next_at, failures, error, actor, request_key, created_at, started_at, ended_at
FROM hapax.job
WHERE actor = $1::text AND request_key = $2::text
