-- Rotates to the next segment if the current one was started more than $1 milliseconds ago and
-- contains events, and if the next one is empty. Returns whether it did. The current time is that
-- of the database's clock, unless a time ($2) is given.
-- Only here: the SQLite store deletes events one by one.
SELECT hapax.rotate($1::int8, $2::timestamptz)
