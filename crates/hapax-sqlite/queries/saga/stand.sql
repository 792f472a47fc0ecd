-- Writes how a saga stands. One that has ended is due no more; one that needs a person stays due
-- until it is given back, so that what it was told meanwhile is not lost with its worker.
UPDATE hapax_saga SET
    state = ?3,
    undoing = ?4,
    reason_code = ?5,
    reason_detail = ?6,
    deadline_at = ?7,
    wake_at = CASE WHEN ?3 IN ('running', 'needs_attention') THEN coalesce(wake_at, ?8) END,
    waiting_for = CASE WHEN ?3 = 'running' THEN waiting_for END,
    ended_at = CASE WHEN ?3 IN ('completed', 'failed') THEN ?8 END
WHERE id = ?1 AND epoch = ?2
