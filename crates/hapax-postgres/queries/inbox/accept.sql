-- Accepts a message once. The row is written in the transaction of the effect.
INSERT INTO hapax.inbox_message
    (consumer, message_id, source, payload_hash, received_at, processed_at)
SELECT $1::text, $2::text, $3::text, $4::bytea, at, at
FROM (SELECT coalesce($5::timestamptz, clock_timestamp()) AS at) AS clock
ON CONFLICT (message_id, consumer, source) DO NOTHING
RETURNING 1
