-- Inserts jobs, of which almost all have ended.
INSERT INTO hapax.job
    (kind, destination, tenant, arguments, state, total, done, next_at, error, actor, created_at,
     started_at, ended_at)
SELECT (ARRAY['replay_dead_letters', 'discard_dead_letters', 'replay_events'])[1 + n / 5000 % 3],
       (ARRAY['mail', 'hooks', 'search'])[1 + n / 5000 % 3], NULL, '{}', state, 1000,
       CASE state WHEN 'waiting' THEN 0 WHEN 'failed' THEN 400 ELSE 1000 END,
       plant.at(n) + interval '1 day', CASE WHEN state = 'failed' THEN 'the store did not answer' END,
       (ARRAY['ops', 'ann', 'bob'])[1 + n / 5000 % 3], plant.at(n), plant.at(n),
       CASE WHEN state <> 'waiting' THEN plant.at(n) + interval '10 seconds' END
FROM (
    SELECT n, CASE n / 5000 % 100 WHEN 0 THEN 'waiting' WHEN 1 THEN 'failed' ELSE 'done' END AS state
    FROM generate_series(($1::bigint + 4999) / 5000 * 5000, $2::bigint - 1, 5000) AS series (n)
) AS every
ORDER BY n
