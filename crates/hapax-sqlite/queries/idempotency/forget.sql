-- Deletes a key at an operator's request, finished or not.
DELETE FROM hapax_idempotency_key
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
