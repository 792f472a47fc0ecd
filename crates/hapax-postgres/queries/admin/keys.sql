-- Lists the keys that match a filter, the newest claim first, and visits at most $10 rows: a filter
-- that matches nothing costs no more than one that matches everything. A page starts after a time
-- ($7, in microseconds, because many keys are claimed within one millisecond) and the number of a
-- key's lock ($8). Every row contains the place where the visit ended; if nothing matches, one row
-- contains only that.
--
-- $11 says which index is read; the other branches are not executed. By time, there is only one
-- bound and one order: with more, the planner, which does not know the values, sorts all keys. With
-- the primary key, only keys with a prefix ($3) are read: if there are more of them than rows are
-- visited, the count shows this, and the list may lack some of the newest. The index of keys in
-- progress contains nothing else: as many as requests that are running, and those whose owner died.
WITH looked AS MATERIALIZED (
    SELECT tenant, operation, key, state, epoch, lease_until, recovery_point, response_status,
           body_bytes, created_at, completed_at, expires_at, resource_id, fingerprint,
           (extract(epoch FROM created_at) / 0.000001)::int8 AS micros,
           hapax.key_lock(tenant, operation, key) AS tie
    FROM (
        (
            SELECT tenant, operation, key, state, epoch, lease_until, recovery_point,
                   response_status, octet_length(response_body)::int8 AS body_bytes, created_at,
                   completed_at, expires_at, resource_id, fingerprint
            FROM hapax.idempotency_key
            WHERE $11::text = 'all'
              AND created_at <= 'epoch'::timestamptz + $7::int8 * interval '1 microsecond'
              AND (created_at < 'epoch'::timestamptz + $7::int8 * interval '1 microsecond'
                   OR hapax.key_lock(tenant, operation, key) < $8::int8)
            ORDER BY created_at DESC
            FETCH FIRST ($10::int8) ROWS WITH TIES
        ) UNION ALL (
            SELECT tenant, operation, key, state, epoch, lease_until, recovery_point,
                   response_status, octet_length(response_body)::int8 AS body_bytes, created_at,
                   completed_at, expires_at, resource_id, fingerprint
            FROM hapax.idempotency_key
            WHERE $11::text = 'prefix'
              AND key >= $3::text COLLATE "C" AND key < $3::text || E'\x7f' COLLATE "C"
            ORDER BY key
            LIMIT $10::int8
        ) UNION ALL (
            SELECT tenant, operation, key, state, epoch, lease_until, recovery_point,
                   response_status, octet_length(response_body)::int8 AS body_bytes, created_at,
                   completed_at, expires_at, resource_id, fingerprint
            FROM hapax.idempotency_key
            WHERE $11::text = 'in_progress' AND state = 'in_progress' AND on_expired <> ''
            ORDER BY lease_until DESC
            LIMIT $10::int8
        )
    ) AS visited
), matching AS (
    SELECT tenant, operation, key, state, epoch, lease_until, recovery_point, response_status,
           body_bytes, created_at, completed_at, expires_at, resource_id, fingerprint, micros,
           tie
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
       response_status, body_bytes, created_at, completed_at, expires_at, resource_id,
       encode(fingerprint, 'hex') AS fingerprint, matching.micros, matching.tie
FROM ends
LEFT JOIN matching ON true
ORDER BY matching.micros DESC, matching.tie DESC
