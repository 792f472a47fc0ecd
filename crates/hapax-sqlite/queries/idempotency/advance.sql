-- Writes the recovery point of a phase with its rows, for the owner alone: no row changes for a
-- fenced one, and then nothing of the phase is kept.
UPDATE hapax_idempotency_key SET
    recovery_point = coalesce(?6, recovery_point)
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
  AND epoch = ?4 AND created_at = ?5 AND state = 'in_progress'
