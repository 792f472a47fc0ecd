-- Says whether this is a standby: it takes no writes, and its snapshots do not say who is writing.
SELECT pg_is_in_recovery()
