-- Finds the sagas that one request started: those that started at or after a time (?1) and before
-- another (?2) and that have the short hash of its key (?3) in a header. It visits at most ?5 rows.
SELECT id
FROM (
    SELECT id, tenant, headers, created_at
    FROM hapax_saga INDEXED BY hapax_saga_created
    WHERE created_at >= ?1
    ORDER BY created_at
    LIMIT ?5
) AS looked
WHERE created_at < ?2
  AND instr(headers, ?3) > 0
  AND (?4 IS NULL OR tenant = ?4)
ORDER BY created_at, id
LIMIT ?6
