-- Frees a key that an attempt has entered without learning of it, and under which nothing was done. The
-- identity of the attempt ($4) is the fence: the row of every other attempt has another owner, or none.
-- Only here: with SQLite, the result of a commit is lost only with the process that waits for it.
DELETE FROM hapax.idempotency_key
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
  AND owner = $4::text AND state = 'in_progress'
RETURNING 1
