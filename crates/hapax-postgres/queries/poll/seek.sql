-- Moves the committed position of a polling endpoint ($1) to a frontier ($2, $3), wherever it is.
UPDATE hapax.poll_endpoint
SET frontier = $2::int8,
    snapshot = $3::text,
    committed_at = coalesce($4::timestamptz, clock_timestamp())
WHERE name = $1::text
RETURNING name, tenant, all_tenants, types, created_at, created_by, frontier, committed_at,
          last_polled_at, old_token_until
