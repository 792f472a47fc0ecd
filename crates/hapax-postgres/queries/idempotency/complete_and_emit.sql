-- Stores the response and appends one event in one statement, which is the most common end of a
-- transaction. It must be open: see session/require_open.
-- Only here: the SQLite store has no round trips to save.
WITH completed AS (
    INSERT INTO hapax.idempotency_key
        (tenant, operation, key, fingerprint, state, response_status, response_headers,
         response_body, on_expired, created_at, completed_at, expires_at, resource_id)
    SELECT $1::text, $2::text, $3::text, $4::bytea, $5::text, $6::int2, $7::bytea, $8::bytea,
           $9::text, coalesce($11::timestamptz, now()), at,
           at + $10::int8 * interval '1 millisecond', $12::text
    FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS at) AS clock
    WHERE (CASE
              WHEN current_setting('transaction_deferrable')
                      <> current_setting('default_transaction_deferrable')
                  OR current_setting('hapax.transaction', true) = 'open' THEN 'on'
              ELSE 'a statement has ended the transaction'
          END)::bool
)
INSERT INTO hapax.outbox_event
    (shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
     created_at, available_at)
VALUES (hapax.shard_of($16::text, $17::text, $13::text::uuid), $13::text::uuid, $14::text, $15::text, $16::text,
        $17::text, $18::int8, $19::text, $20::text, $21::timestamptz, $22::timestamptz)
