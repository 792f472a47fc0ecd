-- Stores the response in the only write of the row. The key was free when it was claimed and has
-- been locked since. If a row exists now, it was written without the lock, and this transaction
-- fails. It also fails if a statement of the handler has ended it: see session/require_open.
INSERT INTO hapax.idempotency_key
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
