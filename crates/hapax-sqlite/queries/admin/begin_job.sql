-- Inserts a job. If the same actor has already requested a job with the same key, none is inserted.
INSERT INTO hapax_job
    (kind, destination, tenant, arguments, state, position, total, per_second, next_at, actor,
     request_key, created_at)
VALUES (?1, ?2, ?3, ?4, 'waiting', ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (actor, request_key) WHERE request_key IS NOT NULL DO NOTHING
RETURNING id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
          failures, error, actor, created_at, started_at, ended_at
