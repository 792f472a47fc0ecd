-- Deletes a key on an operator's word, unless its request is in progress.
-- Only here: the other store has one process, and nobody beside it who operates.
DELETE FROM hapax.idempotency_key
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text AND state <> 'in_progress'
RETURNING 1
