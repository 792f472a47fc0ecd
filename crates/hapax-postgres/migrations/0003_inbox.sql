-- Inbox: messages that consumers have accepted.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Messages, once per consumer and source.
CREATE TABLE hapax.inbox_message (
    consumer     text NOT NULL,
    message_id   text NOT NULL COLLATE "C",
    source       text NOT NULL,
    payload_hash bytea NOT NULL,
    received_at  timestamptz NOT NULL,
    processed_at timestamptz,
    result       text,
    PRIMARY KEY (message_id, consumer, source)
);
CREATE INDEX inbox_message_received ON hapax.inbox_message (received_at);
