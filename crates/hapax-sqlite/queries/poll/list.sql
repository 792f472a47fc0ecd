-- Lists the polling endpoints after a name (?1), of one tenant (?2) or of all, at most ?3.
SELECT name, tenant, all_tenants, types, created_at, created_by, frontier, committed_at,
       last_polled_at, old_token_until
FROM hapax_poll_endpoint
WHERE name > ?1 AND (?2 IS NULL OR tenant = ?2)
ORDER BY name
LIMIT ?3
