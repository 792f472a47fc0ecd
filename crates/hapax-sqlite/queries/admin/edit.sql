-- Replaces the payload and headers that a dead letter offers.
UPDATE hapax_delivery SET
    payload = ?3,
    headers = ?4
WHERE destination = ?1 AND position = ?2 AND state = 'dead'
