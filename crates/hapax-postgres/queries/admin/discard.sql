-- Discards dead letters, and returns the order keys that they blocked.
-- Only here: the SQLite store discards one dead letter per statement, as its relay does.
UPDATE hapax.delivery SET
    state = 'discarded',
    reason = $4::text,
    changed_at = $3::timestamptz
WHERE destination = $1::text AND position = ANY ($2::int8[]) AND state = 'dead'
RETURNING order_key
