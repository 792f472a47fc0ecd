-- Moves the committed position of a polling endpoint (?1) to a position (?2), wherever it is.
UPDATE hapax_poll_endpoint
SET frontier = ?2, committed_at = ?3
WHERE name = ?1
RETURNING name, tenant, all_tenants, types, created_at, created_by, frontier, committed_at,
          last_polled_at, old_token_until
