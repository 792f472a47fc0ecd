-- Empties the half of the log of checkpoints that nothing is appended to now.
-- Only here: the other store rewrites its rows.
SELECT hapax.sweep_checkpoints($1::int2)
