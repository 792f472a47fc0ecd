-- The seeded bug `check-then-insert`: whoever finds an answer in its place takes it for its own.
-- Only here: the other store writes over whatever row there is.
INSERT INTO hapax.idempotency_key
    (tenant, operation, key, fingerprint, state, response_status, response_headers, response_body,
     on_expired, created_at, completed_at, expires_at)
SELECT $1::text, $2::text, $3::text, $4::bytea, $5::text, $6::int2, $7::bytea, $8::bytea, $9::text,
       coalesce($11::timestamptz, now()), at, at + $10::int8 * interval '1 millisecond'
FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS at) AS clock
ON CONFLICT (key, operation, tenant) DO NOTHING
