-- Reads a key with its response. It returns two keys if more than one tenant or operation matches.
SELECT tenant, operation, key, state, epoch, lease_until, recovery_point, response_status,
       octet_length(response_body)::int8 AS body_bytes, created_at, completed_at, expires_at,
       resource_id,
       encode(fingerprint, 'hex') AS fingerprint, on_expired,
       octet_length(request)::int8 AS request_bytes, response_headers, response_body,
       owner, recovery_data::text AS recovery_data,
       coalesce($4::timestamptz, clock_timestamp()) AS at, xmin::text::int8 AS xmin,
       (extract(epoch FROM created_at) / 0.000001)::int8 AS micros
FROM hapax.idempotency_key
WHERE key = $1::text
  AND ($2::text IS NULL OR operation = $2::text)
  AND ($3::text IS NULL OR tenant = $3::text)
ORDER BY operation, tenant
LIMIT 2
