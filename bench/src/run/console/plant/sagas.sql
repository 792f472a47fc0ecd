-- Inserts sagas: most have ended, some are running, some need attention.
INSERT INTO hapax.saga
    (id, name, version, tenant, input, headers, state, compensating, reason_code, reason_detail,
     deadline_at, wake_at, waiting_for, created_at, ended_at)
SELECT 'saga-' || md5(n::text), (ARRAY['checkout', 'refund', 'onboarding'])[1 + n / 200 % 3],
       1 + n / 200 % 2, plant.tenant(plant.request(n)),
       convert_to(format('{"order":"o-%s","amount":1299}', plant.request(n)), 'UTF8'), plant.headers(plant.request(n)),
       state, state = 'failed',
       CASE WHEN state IN ('needs_attention', 'failed') THEN 'timeout' END,
       CASE WHEN state IN ('needs_attention', 'failed') THEN 'nobody knows whether the card was charged' END,
       plant.at(n) + interval '1 day',
       CASE WHEN state = 'running' THEN plant.at(n) + n % 7200 * interval '1 second' END,
       CASE WHEN state = 'running' THEN 'a parcel' END,
       plant.at(n),
       CASE WHEN state IN ('completed', 'failed') THEN plant.at(n) + interval '3 seconds' END
FROM (
    SELECT n, CASE n / 200 % 25 WHEN 0 THEN 'needs_attention' WHEN 1 THEN 'running' WHEN 2 THEN 'failed'
                                ELSE 'completed' END AS state
    FROM generate_series(($1::bigint + 192) / 200 * 200 + 7, $2::bigint - 1, 200) AS series (n)
) AS every
