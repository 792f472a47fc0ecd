-- Takes hold of a part: whoever changes its deliveries does this first, so that no two of them wait
-- for each other's rows.
-- Only here: a single writer does one thing at a time.
SELECT 1
FROM hapax.lease
WHERE part = $1::text
FOR NO KEY UPDATE
