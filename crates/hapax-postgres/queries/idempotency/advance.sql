-- Writes the recovery point of a phase in the transaction of its rows, for the owner only. Data that
-- an SQL caller has recorded with an earlier phase is deleted. If the owner is fenced, no row changes
-- and the statement divides by zero, so that the later statements of the pipeline and the commit
-- fail.
-- IS NOT DISTINCT FROM keeps the planner from the index of created_at: a group has one time.
WITH advanced AS (
    UPDATE hapax.idempotency_key SET
        recovery_point = coalesce($6::text, recovery_point),
        recovery_data = CASE WHEN $6::text IS NULL THEN recovery_data END
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
      AND epoch = $4::int8 AND created_at IS NOT DISTINCT FROM $5::timestamptz AND state = 'in_progress'
    RETURNING 1
)
SELECT 1 / count(*)
FROM advanced
