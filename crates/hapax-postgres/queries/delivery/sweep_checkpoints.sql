-- Empties the half of the log of checkpoints to which nothing is appended now.
-- Only here: the SQLite store updates its rows in place.
SELECT hapax.sweep_checkpoints($1::int2)
