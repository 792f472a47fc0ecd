-- Makes a saga that has not ended due, because it has received a signal.
UPDATE hapax_saga SET wake_at = min(coalesce(wake_at, ?2), ?2)
WHERE id = ?1 AND ended_at IS NULL
