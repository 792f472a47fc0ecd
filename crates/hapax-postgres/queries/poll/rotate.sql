-- Gives a polling endpoint another token ($2). The current one is valid until a time ($3), and none
-- but the new one if that is null. The row keeps the previous token that ends last.
UPDATE hapax.poll_endpoint
SET token = $2::bytea,
    old_token = CASE
        WHEN old_token_until > $3::timestamptz THEN old_token
        WHEN $3::timestamptz IS NOT NULL THEN token
    END,
    old_token_until = CASE
        WHEN $3::timestamptz IS NOT NULL THEN greatest(old_token_until, $3::timestamptz)
    END
WHERE name = $1::text
RETURNING name, tenant, all_tenants, types, created_at, created_by, frontier, committed_at,
          last_polled_at, old_token_until
