-- Lists the endpoints of one tenant (?1) or of all that were disabled last, at most ?2, and counts all that
-- are disabled.
SELECT id, tenant, disabled_reason, disabled_at, count(*) OVER () AS number
FROM hapax_endpoint
WHERE deleted_at IS NULL
  AND disabled_reason IS NOT NULL
  AND (?1 IS NULL OR tenant = ?1)
ORDER BY disabled_at DESC, id
LIMIT ?2
