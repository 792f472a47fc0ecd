-- Discards a dead letter, and returns the order key that it blocked.
UPDATE hapax.delivery SET
    state = 'discarded',
    reason = $4::text,
    changed_at = $3::timestamptz
WHERE destination = $1::text AND position = $2::int8 AND state = 'dead'
RETURNING order_key
