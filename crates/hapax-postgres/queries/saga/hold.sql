-- Locks the row of an owned saga until the transaction ends, renews its lease, and returns the
-- number of its signals. No row means that another owner has taken the saga since. The update waits
-- for a transaction that is storing a signal.
UPDATE hapax.saga SET
    lease_until = coalesce($4::timestamptz, clock_timestamp()) + $3::int8 * interval '1 millisecond'
WHERE id = $1::text AND epoch = $2::int8
RETURNING signals_received
