-- Reads where a partition starts when it is opened first, if that is recorded.
-- Only here: the PostgreSQL store computes the backlog in one statement.
SELECT start.frontier
FROM hapax_start AS start
WHERE start.destination = substr(?1, 1, instr(?1 || '/', '/') - 1)
