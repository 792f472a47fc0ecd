-- Like complete, but optimistic: the key was neither locked nor read, and must be free, or this
-- statement and the whole pipeline fail. A key that another transaction is using divides by zero; a
-- key that has a row violates the primary key.
-- Only here: a claim costs no round trip in the SQLite store.
INSERT INTO hapax.idempotency_key
    (tenant, operation, key, fingerprint, state, response_status, response_headers, response_body,
     on_expired, created_at, completed_at, expires_at, resource_id)
SELECT $1::text, $2::text, $3::text, $4::bytea, $5::text, $6::int2, $7::bytea, $8::bytea, $9::text,
       coalesce($11::timestamptz, now()), at, at + $10::int8 * interval '1 millisecond',
       $12::text
FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS at) AS clock
WHERE 1 / pg_try_advisory_xact_lock(hapax.key_lock($1::text, $2::text, $3::text))::int = 1
