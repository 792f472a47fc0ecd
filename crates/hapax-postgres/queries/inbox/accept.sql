-- Accepts a message once. The row is written in the transaction of the effect, and completed at the
-- end of that transaction: see processed.
INSERT INTO hapax.inbox_message (consumer, message_id, source, payload_hash, received_at)
VALUES ($1::text, $2::text, $3::text, $4::bytea, coalesce($5::timestamptz, clock_timestamp()))
ON CONFLICT (message_id, consumer, source) DO NOTHING
RETURNING 1
