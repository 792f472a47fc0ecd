-- Records that a polling endpoint was polled now, by the database's clock unless a time ($3) is given.
UPDATE hapax.poll_endpoint
SET last_polled_at = coalesce($3::timestamptz, clock_timestamp())
WHERE name = $1::text AND secret = $2::bytea
