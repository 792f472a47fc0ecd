-- Writes the recovery point of a phase with its rows, for the owner alone. For a fenced one no row
-- changes and it divides by zero: what is behind it in the flight, and the commit, fail with it.
WITH advanced AS (
    UPDATE hapax.idempotency_key SET
        recovery_point = coalesce($6::text, recovery_point)
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
      AND epoch = $4::int8 AND created_at = $5::timestamptz AND state = 'in_progress'
    RETURNING 1
)
SELECT 1 / count(*)
FROM advanced
