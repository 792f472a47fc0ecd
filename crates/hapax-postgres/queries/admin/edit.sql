-- Replaces the payload and headers that a dead letter offers.
UPDATE hapax.delivery SET
    payload = $3::text,
    headers = $4::text
WHERE destination = $1::text AND position = $2::int8 AND state = 'dead'
RETURNING 1
