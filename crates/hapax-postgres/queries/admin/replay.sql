-- Makes dead letters due again, with no attempts counted.
UPDATE hapax.delivery SET
    state = 'retrying',
    attempt = 0,
    next_at = $3::timestamptz,
    begun_at = NULL,
    changed_at = $3::timestamptz,
    manual = true
WHERE destination = $1::text AND position = ANY ($2::int8[]) AND state = 'dead'
RETURNING 1
