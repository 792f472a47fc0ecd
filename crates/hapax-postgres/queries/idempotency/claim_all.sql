-- Claims and completes many keys at once, in the order of their scopes, and returns those that were
-- free: neither stored nor in use by another transaction. Each key has its payload lock ($13), as in
-- lock: the members' statements follow in a second pipeline.
-- Only here: the SQLite store claims keys one by one, in one transaction.
INSERT INTO hapax.idempotency_key
    (tenant, operation, key, fingerprint, state, response_status, response_headers, response_body,
     on_expired, created_at, completed_at, expires_at, resource_id)
SELECT tenant, operation, key, fingerprint, state, status, headers, body, on_expired, at, at,
       at + retention * interval '1 millisecond', resource_id
FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS at) AS clock,
     (SELECT unnest($1::text[]) AS tenant, unnest($2::text[]) AS operation, unnest($3::text[]) AS key,
             unnest($4::bytea[]) AS fingerprint, unnest($5::text[]) AS state,
             unnest($6::int2[]) AS status, unnest($7::bytea[]) AS headers,
             unnest($8::bytea[]) AS body, unnest($9::text[]) AS on_expired,
             unnest($10::int8[]) AS retention, unnest($12::text[]) AS resource_id,
             unnest($13::int8[]) AS payload_lock) AS member
WHERE CASE
          WHEN pg_try_advisory_xact_lock_shared(payload_lock)
          THEN pg_try_advisory_xact_lock(hapax.key_lock(tenant, operation, key))
          ELSE false
      END
ON CONFLICT (key, operation, tenant) DO NOTHING
RETURNING tenant, operation, key
