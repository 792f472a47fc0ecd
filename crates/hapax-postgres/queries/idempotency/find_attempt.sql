-- Finds the row that an attempt to enter a key has written, by the identity of the attempt ($4), after
-- the result of its commit was lost. A row with another owner, or with a response, is not found.
-- Only here: with SQLite, the result of a commit is lost only with the process that waits for it.
SELECT epoch, created_at
FROM hapax.idempotency_key
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
  AND owner = $4::text AND state = 'in_progress'
