-- Has a dead letter offer other words than its event's.
-- Only here: the other store has one process, and nobody beside it who operates.
UPDATE hapax.delivery SET
    payload = $3::text,
    headers = $4::text
WHERE destination = $1::text AND position = $2::int8 AND state = 'dead'
RETURNING 1
