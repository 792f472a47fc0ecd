-- Empties the half of the log of heartbeats to which nothing is appended now.
-- Only here: the SQLite store updates its rows in place.
SELECT hapax.sweep_signs($1::int2)
