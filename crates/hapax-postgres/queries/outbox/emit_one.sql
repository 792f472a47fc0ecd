-- Appends one event: arrays with one element would double the cost. The transaction must be open: see
-- session/require_open.
-- Only here: the SQLite store writes every event separately.
INSERT INTO hapax.outbox_event
    (shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
     created_at, available_at)
SELECT hapax.shard_of($4::text, $5::text, $1::text::uuid), $1::text::uuid, $2::text, $3::text, $4::text, $5::text,
       $6::int8, $7::text, $8::text, $9::timestamptz, $10::timestamptz
WHERE (CASE
          WHEN current_setting('transaction_deferrable')
                  <> current_setting('default_transaction_deferrable')
              OR current_setting('hapax.transaction', true) = 'open' THEN 'on'
          ELSE 'a statement has ended the transaction'
      END)::bool
