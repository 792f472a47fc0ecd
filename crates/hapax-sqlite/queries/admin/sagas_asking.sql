-- Counts the sagas that need attention, by kind, up to ?1 of them, with the time of the first one,
-- of one tenant (?2) or of all.
-- Only here: the PostgreSQL store lists them together with the overdue ones.
SELECT name, version, count(*) AS number, min(created_at) AS since
FROM (
    SELECT name, version, tenant, created_at
    FROM hapax_saga INDEXED BY hapax_saga_state
    WHERE state = 'needs_attention'
    ORDER BY id
    LIMIT ?1
) AS asking
WHERE ?2 IS NULL OR tenant = ?2
GROUP BY name, version
ORDER BY name, version
