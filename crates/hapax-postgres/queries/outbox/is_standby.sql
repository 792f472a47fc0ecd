-- Says whether this is a standby: it takes no writes, and its snapshots do not say who is writing.
-- Only here: the other store is one file.
SELECT pg_is_in_recovery()
