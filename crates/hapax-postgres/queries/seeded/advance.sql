-- The seeded bug `no-fence`: an owner that is fenced can still write a recovery point.
-- Only here: the SQLite store removes the clause from the correct statement.
WITH advanced AS (
    UPDATE hapax.idempotency_key SET
        recovery_point = coalesce($6::text, recovery_point)
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
      AND $4::int8 IS NOT NULL AND $5::timestamptz IS NOT NULL
    RETURNING 1
)
SELECT 1 / count(*)
FROM advanced
