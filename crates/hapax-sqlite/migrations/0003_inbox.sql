-- Inbox: messages that consumers have accepted.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Messages, once per consumer and source.
CREATE TABLE hapax_inbox_message (
    consumer     TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    source       TEXT NOT NULL,
    payload_hash BLOB NOT NULL,
    received_at  INTEGER NOT NULL,
    processed_at INTEGER,
    result       TEXT,
    PRIMARY KEY (consumer, message_id, source)
) WITHOUT ROWID;
CREATE INDEX hapax_inbox_message_received ON hapax_inbox_message (received_at);
