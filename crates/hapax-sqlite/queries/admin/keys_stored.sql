-- Counts the stored keys up to a bound (?1). Beyond it, the number is estimated from the range of
-- row numbers: keys are deleted in about the order in which they were inserted.
-- Only here: the PostgreSQL store reads the estimate of its planner.
SELECT (
           SELECT count(*) FROM (SELECT 1 FROM hapax_idempotency_key LIMIT ?1)
       ) AS counted,
       (SELECT max(rowid) FROM hapax_idempotency_key)
           - (SELECT min(rowid) FROM hapax_idempotency_key) + 1 AS about
