-- Stores the response over a row that had expired when the key was claimed. If the row has not
-- expired, its new epoch is null here, which fails the transaction. The transaction must be open: see
-- session/require_open.
-- Only here: the single writer of SQLite does not need to check the row again.
INSERT INTO hapax.idempotency_key AS old
    (tenant, operation, key, fingerprint, state, response_status, response_headers, response_body,
     on_expired, created_at, completed_at, expires_at, resource_id)
SELECT $1::text, $2::text, $3::text, $4::bytea, $5::text, $6::int2, $7::bytea, $8::bytea, $9::text,
       coalesce($11::timestamptz, now()), at, at + $10::int8 * interval '1 millisecond',
       $12::text
FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS at) AS clock
WHERE (CASE
          WHEN current_setting('transaction_deferrable')
                  <> current_setting('default_transaction_deferrable')
              OR current_setting('hapax.transaction', true) = 'open' THEN 'on'
          ELSE 'a statement has ended the transaction'
      END)::bool
ON CONFLICT (key, operation, tenant) DO UPDATE SET
    fingerprint = excluded.fingerprint,
    state = excluded.state,
    epoch = CASE
        WHEN old.state <> 'in_progress'
             AND (old.state = 'tombstone' OR old.expires_at <= excluded.completed_at)
        THEN old.epoch + 1
    END,
    lease_until = NULL,
    owner = NULL,
    recovery_point = NULL,
    recovery_data = NULL,
    request = NULL,
    response_status = excluded.response_status,
    response_headers = excluded.response_headers,
    response_body = excluded.response_body,
    resource_id = excluded.resource_id,
    on_expired = excluded.on_expired,
    created_at = excluded.created_at,
    completed_at = excluded.completed_at,
    expires_at = excluded.expires_at
