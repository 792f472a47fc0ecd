-- Counts the sagas, by kind, that have been due since before a time (?1) and are not taken, with the
-- time at which the first of them was due. It visits at most ?2 sagas, those that have been due
-- longest.
SELECT name, version, count(*) AS number, min(due_at) AS since
FROM (
    SELECT name, version, tenant, max(wake_at, lease_until) AS due_at
    FROM hapax_saga INDEXED BY hapax_saga_due
    WHERE wake_at < ?1
    ORDER BY wake_at
    LIMIT ?2
) AS due
WHERE due_at < ?1 AND (?3 IS NULL OR tenant = ?3)
GROUP BY name, version
ORDER BY name, version
