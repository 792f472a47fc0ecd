-- Deletes one expired key that the batch named.
DELETE FROM hapax_idempotency_key
WHERE rowid = ?1
