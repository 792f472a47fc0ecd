-- Holds the row of an owned saga until the transaction ends, has its lease count anew, and says how
-- much it was told: no row comes back where another owner has come since, and whoever is telling it
-- something is waited for.
UPDATE hapax.saga SET
    lease_until = coalesce($4::timestamptz, clock_timestamp()) + $3::int8 * interval '1 millisecond'
WHERE id = $1::text AND epoch = $2::int8
RETURNING told
