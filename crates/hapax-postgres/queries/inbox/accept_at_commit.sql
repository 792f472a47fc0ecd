-- Accepts a message in the last pipeline of its transaction, with the time and the result of its
-- effect. Without ON CONFLICT, because a message that was accepted before must fail this statement
-- and with it the whole transaction: the effect is already written.
-- Only here: an acceptance costs no round trip in the SQLite store.
INSERT INTO hapax.inbox_message
    (consumer, message_id, source, payload_hash, received_at, processed_at, result)
VALUES ($1::text, $2::text, $3::text, $4::bytea, coalesce($5::timestamptz, now()),
        coalesce($5::timestamptz, clock_timestamp()), $6::text)
