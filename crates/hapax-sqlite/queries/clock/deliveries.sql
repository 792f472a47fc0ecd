-- Makes retries due now (?1) that were scheduled while the clock was ahead of ?2, because the
-- intended time is unknown. Scheduled deliveries are left alone: the emitter chose their time.
-- Only here: the PostgreSQL store uses the clock of the server.
UPDATE hapax_delivery INDEXED BY hapax_delivery_due SET
    next_at = ?1,
    changed_at = ?1
WHERE state IN ('scheduled', 'retrying')
  AND state = 'retrying'
  AND next_at > ?1
  AND changed_at > ?2
