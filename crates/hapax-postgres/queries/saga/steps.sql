-- Reads the steps of some sagas in the order in which they started. The steps of each saga are
-- looked up separately, regardless of the statistics of the table: see delivery/release.
SELECT asked.saga, name, direction, state, provider_key, request, made, error_code, error_detail, attempts,
       next_at, began_at, ended_at
FROM unnest($1::text[]) AS asked (saga)
CROSS JOIN LATERAL (
    SELECT step.place, step.name, step.direction, step.state, step.provider_key, step.request, step.made,
           step.error_code, step.error_detail, step.attempts, step.next_at, step.began_at,
           step.ended_at
    FROM hapax.saga_step AS step
    WHERE step.saga = asked.saga
    OFFSET 0
) AS begun
ORDER BY place
