-- Releases a saga until it is due again. It is due at once if it has received a signal meanwhile,
-- and never by itself if it waits for a person.
UPDATE hapax_saga SET
    lease_until = 0,
    waiting_for = CASE WHEN ended_at IS NULL THEN ?5 END,
    wake_at = CASE
        WHEN ended_at IS NOT NULL THEN NULL
        WHEN (SELECT count(*) FROM hapax_saga_signal WHERE saga = ?1) > ?6 THEN ?3
        WHEN state = 'running' THEN ?4
    END
WHERE id = ?1 AND epoch = ?2
