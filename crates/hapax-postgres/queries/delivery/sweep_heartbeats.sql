-- Empties the half of the log of heartbeats to which nothing is appended now.
-- Only here: the SQLite store updates its rows in place.
SELECT hapax.sweep_heartbeats($1::int2)
