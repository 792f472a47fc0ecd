-- Stores the answer over a row that was found expired when the key was claimed. A row that is not
-- expired keeps its epoch, which is null here and fails the transaction.
-- Only here: a single writer needs no second look at the row.
INSERT INTO hapax.idempotency_key AS old
    (tenant, operation, key, fingerprint, state, response_status, response_headers, response_body,
     on_expired, created_at, completed_at, expires_at)
SELECT $1::text, $2::text, $3::text, $4::bytea, $5::text, $6::int2, $7::bytea, $8::bytea, $9::text,
       coalesce($11::timestamptz, now()), at, at + $10::int8 * interval '1 millisecond'
FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS at) AS clock
ON CONFLICT (key, operation, tenant) DO UPDATE SET
    fingerprint = excluded.fingerprint,
    state = excluded.state,
    epoch = CASE
        WHEN old.state <> 'in_progress'
             AND (old.state = 'tombstone' OR old.expires_at <= excluded.completed_at)
        THEN old.epoch + 1
    END,
    lease_until = NULL,
    recovery_point = NULL,
    request = NULL,
    response_status = excluded.response_status,
    response_headers = excluded.response_headers,
    response_body = excluded.response_body,
    resource_id = NULL,
    on_expired = excluded.on_expired,
    created_at = excluded.created_at,
    completed_at = excluded.completed_at,
    expires_at = excluded.expires_at
