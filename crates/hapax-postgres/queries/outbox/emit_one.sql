-- Appends one event: arrays with one element would double the cost.
-- Only here: the SQLite store writes every event separately.
INSERT INTO hapax.outbox_event
    (shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
     created_at, available_at)
VALUES (hapax.shard_of($4::text, $5::text, $1::text::uuid), $1::text::uuid, $2::text, $3::text, $4::text, $5::text,
        $6::int8, $7::text, $8::text, $9::timestamptz, $10::timestamptz)
