-- The seeded bug `no-fence`: a recovery point is written by whoever had the key once.
-- Only here: the other store drops the clause from the sound statement.
WITH advanced AS (
    UPDATE hapax.idempotency_key SET
        recovery_point = coalesce($6::text, recovery_point)
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
      AND $4::int8 IS NOT NULL AND $5::timestamptz IS NOT NULL
    RETURNING 1
)
SELECT 1 / count(*)
FROM advanced
