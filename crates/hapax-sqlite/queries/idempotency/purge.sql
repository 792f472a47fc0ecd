-- Deletes one expired key of the batch.
DELETE FROM hapax_idempotency_key
WHERE rowid = ?1
