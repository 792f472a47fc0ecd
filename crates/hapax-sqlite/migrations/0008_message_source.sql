-- A message is identified by its source, its id and its consumer. Ids are unique at their sender
-- only: before, a message that one source sent made another source's message of the same id a
-- duplicate, whose effect was lost, or a mismatch. Rows that are there keep the source that they
-- were stored with. SQLite cannot change a primary key: the rows are copied, in the order of the
-- new key, which is that of the old one.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

CREATE TABLE hapax_inbox_message_of_source (
    consumer     TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    source       TEXT NOT NULL,
    payload_hash BLOB NOT NULL,
    received_at  INTEGER NOT NULL,
    processed_at INTEGER,
    result       TEXT,
    PRIMARY KEY (consumer, message_id, source)
) WITHOUT ROWID;
INSERT INTO hapax_inbox_message_of_source
    (consumer, message_id, source, payload_hash, received_at, processed_at, result)
SELECT consumer, message_id, source, payload_hash, received_at, processed_at, result
FROM hapax_inbox_message
ORDER BY consumer, message_id;
DROP TABLE hapax_inbox_message;
ALTER TABLE hapax_inbox_message_of_source RENAME TO hapax_inbox_message;
CREATE INDEX hapax_inbox_message_received ON hapax_inbox_message (received_at);
