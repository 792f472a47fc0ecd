-- Counts an attempt before it is made, so that an event which kills its relay runs out of them.
UPDATE hapax_delivery SET
    attempt = ?3,
    begun_at = ?4
WHERE destination = ?1 AND position = ?2 AND state IN ('scheduled', 'retrying')
