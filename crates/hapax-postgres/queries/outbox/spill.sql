-- Parks up to $3 events of a segment ($1) that a partition ($2) has not read, for at most $4
-- milliseconds, and fences the owner. Returns the number of parked events; 0 means that none are
-- left.
-- Only here: the SQLite store has no segments.
SELECT hapax.spill($1::int4, $2::text, $3::int4, $4::int8, $5::timestamptz)
