-- Deletes a key on an operator's word, finished or not.
DELETE FROM hapax.idempotency_key
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
RETURNING 1
