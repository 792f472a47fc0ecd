-- Returns approximately the first id of an event that was created at or after a time.
SELECT hapax.id_at($1::timestamptz)
