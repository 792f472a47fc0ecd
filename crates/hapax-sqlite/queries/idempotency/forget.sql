-- Deletes a key on an operator's word, finished or not.
DELETE FROM hapax_idempotency_key
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
