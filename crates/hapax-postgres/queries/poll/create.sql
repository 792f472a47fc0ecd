-- Creates a polling endpoint, unless there is one of this name.
INSERT INTO hapax.poll_endpoint
    (name, tenant, all_tenants, types, token, secret, frontier, snapshot, created_at, created_by)
VALUES ($1::text, $2::text, $3::bool, $4::text, $5::bytea, $6::bytea, $7::int8, $8::text,
        coalesce($9::timestamptz, clock_timestamp()), $10::text)
ON CONFLICT (name) DO NOTHING
RETURNING name, tenant, all_tenants, types, created_at, created_by, frontier, committed_at,
          last_polled_at, old_token_until
