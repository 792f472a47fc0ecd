-- Makes dead letters due again, as if never tried.
-- Only here: the other store has one process, and nobody beside it who operates.
UPDATE hapax.delivery SET
    state = 'retrying',
    attempt = 0,
    next_at = $3::timestamptz,
    begun_at = NULL,
    changed_at = $3::timestamptz,
    asked = true
WHERE destination = $1::text AND position = ANY ($2::int8[]) AND state = 'dead'
RETURNING 1
