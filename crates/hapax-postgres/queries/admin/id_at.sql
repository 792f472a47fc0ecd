-- Returns approximately the first id of an event that was created at or after a time.
-- Only here: the SQLite store belongs to one process, and has no admin API.
SELECT hapax.id_at($1::timestamptz)
