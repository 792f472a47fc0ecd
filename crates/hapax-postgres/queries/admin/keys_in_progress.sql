-- Like keys, but only for keys in progress, with the index that contains nothing else. There are as
-- many of them as requests that are running, and those whose owner died.
-- Only here: the SQLite store belongs to one process, and has no admin API.
WITH looked AS MATERIALIZED (
    SELECT tenant, operation, key, state, epoch, lease_until, recovery_point, response_status,
           octet_length(response_body)::int8 AS body_bytes, created_at, completed_at, expires_at,
           (extract(epoch FROM created_at) / 0.000001)::int8 AS micros,
           hapax.key_lock(tenant, operation, key) AS tie
    FROM hapax.idempotency_key
    WHERE state = 'in_progress'
    ORDER BY lease_until DESC
    LIMIT $10::int8
), matching AS (
    SELECT tenant, operation, key, state, epoch, lease_until, recovery_point, response_status,
           body_bytes, created_at, completed_at, expires_at, micros, tie
    FROM looked
    WHERE ($1::text IS NULL OR operation = $1::text)
      AND ($2::text IS NULL OR tenant = $2::text)
      AND ($3::text IS NULL OR starts_with(key, $3::text))
      AND ($4::text IS NULL
           OR starts_with(left(encode(sha256(convert_to(key, 'UTF8')), 'hex'), 16), $4::text))
      AND ($5::text IS NULL OR state = $5::text)
      AND ($6::timestamptz IS NULL OR created_at >= $6::timestamptz)
      AND (micros < $7::int8 OR micros = $7::int8 AND tie < $8::int8)
    ORDER BY micros DESC, tie DESC
    LIMIT $9::int8
), ends AS (
    SELECT (SELECT count(*) FROM looked) AS count, micros, tie
    FROM looked
    ORDER BY micros, tie
    LIMIT 1
)
SELECT ends.count AS looked, ends.micros AS end_micros, ends.tie AS end_tie,
       tenant, operation, key, state, epoch, lease_until, recovery_point,
       response_status, body_bytes, created_at, completed_at, expires_at, matching.micros, matching.tie
FROM ends
LEFT JOIN matching ON true
ORDER BY matching.micros DESC, matching.tie DESC
