-- Reads a polling endpoint for operators, without what is secret.
SELECT name, tenant, all_tenants, types, created_at, created_by, frontier, committed_at,
       last_polled_at, old_token_until
FROM hapax.poll_endpoint
WHERE name = $1::text
