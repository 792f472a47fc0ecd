-- Gives dead letters up for good, and says which keys they held up.
-- Only here: the other store has one process, and nobody beside it who operates.
UPDATE hapax.delivery SET
    state = 'discarded',
    reason = $4::text,
    changed_at = $3::timestamptz
WHERE destination = $1::text AND position = ANY ($2::int8[]) AND state = 'dead'
RETURNING order_key
