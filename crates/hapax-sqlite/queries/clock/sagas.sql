-- Has sagas that fall due later than ?2 fall due now (?1), and leases that end later end at ?3: either may
-- be of a clock that was ahead. A saga that sleeps for as long as it should is looked at once and sleeps on.
-- Only here: the other store goes by the clock of its server.
UPDATE hapax_saga SET
    wake_at = CASE WHEN wake_at > ?2 THEN ?1 ELSE wake_at END,
    lease_until = CASE WHEN lease_until > ?2 THEN ?3 ELSE lease_until END
WHERE wake_at IS NOT NULL
  AND (wake_at > ?2 OR lease_until > ?2)
