-- Empties a segment ($1) that every partition has read and that was closed more than $2
-- milliseconds ago, or moves more of the events that deliveries need out of it. Returns about how
-- many events that were. Fails if another transaction is using the segment. The current time is
-- that of the database's clock, unless a time ($3) is given.
-- Only here: the SQLite store deletes events one by one.
SELECT hapax.empty_segment($1::int4, $2::int8, $3::timestamptz)
