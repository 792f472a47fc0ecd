-- What phased requests need: the request itself, so that it can be resumed without its client, and
-- the keys whose owner may have died.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

ALTER TABLE hapax_idempotency_key ADD COLUMN request BLOB;
CREATE INDEX hapax_idempotency_key_lapses ON hapax_idempotency_key (lease_until)
    WHERE state = 'in_progress';
