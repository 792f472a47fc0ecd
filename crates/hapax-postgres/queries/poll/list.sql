-- Lists the polling endpoints after a name ($1), of one tenant ($2) or of all, at most $3.
SELECT name, tenant, all_tenants, types, created_at, created_by, frontier, committed_at,
       last_polled_at, old_token_until
FROM hapax.poll_endpoint
WHERE name COLLATE "C" > $1::text
  AND ($2::text IS NULL OR tenant = $2::text)
ORDER BY name COLLATE "C"
LIMIT $3::int8
