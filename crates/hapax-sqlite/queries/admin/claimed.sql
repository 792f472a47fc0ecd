-- Counts the keys that were claimed since a time (?1), at most ?2, by state, with how many of them
-- belong to a tenant (?3), and with the time of the earliest of them.
-- Only here: the PostgreSQL store reads all recent activity in one statement.
SELECT state, count(*) AS looked, count(*) FILTER (WHERE ?3 IS NULL OR tenant = ?3) AS number,
       min(created_at) AS since
FROM (
    SELECT state, tenant, created_at
    FROM hapax_idempotency_key INDEXED BY hapax_idempotency_key_created
    WHERE created_at >= ?1
    ORDER BY created_at DESC
    LIMIT ?2
) AS claimed
GROUP BY state
