-- Creates a polling endpoint, unless there is one of this name.
INSERT INTO hapax_poll_endpoint
    (name, tenant, all_tenants, types, token, secret, frontier, created_at, created_by)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (name) DO NOTHING
RETURNING name, tenant, all_tenants, types, created_at, created_by, frontier, committed_at,
          last_polled_at, old_token_until
