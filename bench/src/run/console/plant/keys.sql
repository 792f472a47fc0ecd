-- Inserts idempotency keys, one per ten events. Some are still in progress because their owner died,
-- some have failed and some are purged.
INSERT INTO hapax.idempotency_key
    (tenant, operation, key, fingerprint, state, lease_until, response_status, response_headers,
     response_body, created_at, completed_at, expires_at)
SELECT plant.tenant(k), (ARRAY['POST /orders', 'POST /payments', 'POST /refunds'])[1 + k % 3],
       plant.key(k), sha256(convert_to(k::text, 'UTF8')), state,
       CASE WHEN state = 'in_progress' THEN at + interval '30 seconds' END,
       CASE state WHEN 'completed' THEN 201 WHEN 'failed' THEN 422 END,
       CASE WHEN state IN ('completed', 'failed')
            THEN (SELECT hapax.header_block('[["content-type", "application/json"]]')) END,
       CASE WHEN state IN ('completed', 'failed')
            THEN convert_to(format('{"id":"o-%s","amount":1299,"currency":"EUR","state":"placed","note":"%s"}',
                                   k, repeat('two mugs, blue; ', 6)), 'UTF8') END,
       at, CASE WHEN state <> 'in_progress' THEN at + interval '20 milliseconds' END,
       at + interval '1 day'
FROM (
    SELECT k, plant.at(k / 8 * 80 + k % 8) AS at,
           CASE WHEN k % 499 = 0 THEN 'in_progress'
                WHEN k % 997 = 1 THEN 'failed'
                WHEN k % 991 = 2 THEN 'tombstone'
                ELSE 'completed' END AS state
    FROM generate_series($1::bigint / 10, $2::bigint / 10 - 1) AS series (k)
) AS every
