-- Locks a polling endpoint until the end of the transaction, and returns the only tenant whose
-- operators may see it.
-- Only here: a transaction of the SQLite store has locked the database.
SELECT tenant
FROM hapax.poll_endpoint
WHERE name = $1::text
FOR UPDATE
