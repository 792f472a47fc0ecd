-- Counts the sagas of a state (?1) and those of them that belong to a tenant (?3), up to ?2.
SELECT count(*) AS looked, count(*) FILTER (WHERE ?3 IS NULL OR tenant = ?3) AS number
FROM (
    SELECT tenant
    FROM hapax_saga INDEXED BY hapax_saga_state
    WHERE state = ?1
    ORDER BY id
    LIMIT ?2
) AS found
