-- Makes sagas due now (?1) that are due later than ?2, and shortens leases that end later than ?2,
-- so that they end at ?3. A clock that was ahead may have set them. A saga that really has to sleep
-- longer is examined once and sleeps on.
-- Only here: the PostgreSQL store uses the clock of the server.
UPDATE hapax_saga SET
    wake_at = CASE WHEN wake_at > ?2 THEN ?1 ELSE wake_at END,
    lease_until = CASE WHEN lease_until > ?2 THEN ?3 ELSE lease_until END
WHERE wake_at IS NOT NULL
  AND (wake_at > ?2 OR lease_until > ?2)
