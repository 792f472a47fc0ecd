-- Writes the state of a saga. A saga that has ended is not due any more. One that needs attention
-- stays due until its owner gives it back, so that a signal that arrives meanwhile is not lost if
-- the owner dies.
UPDATE hapax_saga SET
    state = ?3,
    compensating = ?4,
    reason_code = ?5,
    reason_detail = ?6,
    deadline_at = ?7,
    wake_at = CASE WHEN ?3 IN ('running', 'needs_attention') THEN coalesce(wake_at, ?8) END,
    waiting_for = CASE WHEN ?3 = 'running' THEN waiting_for END,
    ended_at = CASE WHEN ?3 IN ('completed', 'failed') THEN ?8 END
WHERE id = ?1 AND epoch = ?2
