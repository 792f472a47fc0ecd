-- Appends one event: arrays of one would cost as much again.
-- Only here: the other store writes every event by itself.
INSERT INTO hapax.outbox_event
    (shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
     created_at, available_at)
VALUES (hapax.shard_of($4::text, $5::text, $1::text::uuid), $1::text::uuid, $2::text, $3::text, $4::text, $5::text,
        $6::int8, $7::text, $8::text, $9::timestamptz, $10::timestamptz)
