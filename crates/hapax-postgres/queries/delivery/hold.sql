-- Locks the lease of a partition. Every transaction that changes its deliveries does this first, so
-- that no two of them wait for each other's rows.
-- Only here: the single writer of SQLite runs one job at a time.
SELECT 1
FROM hapax.lease
WHERE partition = $1::text
FOR NO KEY UPDATE
