-- Inserts three steps for each saga. The last is open if the saga is running or needs attention.
INSERT INTO hapax.saga_step
    (saga, name, direction, state, provider_key, request, made, error_code, error_detail, attempts, next_at,
     began_at, ended_at)
SELECT 'saga-' || md5(n::text), name, 'forward', CASE WHEN is_open THEN 'open' ELSE 'done' END,
       format('%s-%s', name, n), convert_to(format('{"amount":%s}', n % 1000), 'UTF8'),
       convert_to('{"ok":true}', 'UTF8'), CASE WHEN is_open THEN 'timeout' END,
       CASE WHEN is_open THEN 'no answer' END, CASE WHEN is_open THEN 3 ELSE 1 END,
       plant.at(n), plant.at(n), CASE WHEN NOT is_open THEN plant.at(n) + interval '1 second' END
FROM generate_series(($1::bigint + 192) / 200 * 200 + 7, $2::bigint - 1, 200) AS series (n)
CROSS JOIN unnest(ARRAY['reserve', 'charge', 'ship']) AS steps (name)
CROSS JOIN LATERAL (SELECT n / 200 % 25 < 2 AND name = 'ship' AS is_open) AS how
ORDER BY n
