-- Claims and completes many keys at once, in the order of their scopes, and says which were free:
-- neither being used by another transaction nor stored.
INSERT INTO hapax.idempotency_key
    (tenant, operation, key, fingerprint, state, response_status, response_headers, response_body,
     on_expired, created_at, completed_at, expires_at)
SELECT tenant, operation, key, fingerprint, state, status, headers, body, on_expired, at, at,
       at + retention * interval '1 millisecond'
FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS at) AS clock,
     unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::int2[], $7::bytea[],
            $8::bytea[], $9::text[], $10::int8[])
     AS member (tenant, operation, key, fingerprint, state, status, headers, body, on_expired,
                retention)
WHERE pg_try_advisory_xact_lock(hapax.key_lock(tenant, operation, key))
ON CONFLICT (key, operation, tenant) DO NOTHING
RETURNING tenant, operation, key
