-- Makes a delivery due that waits for its next attempt, and keeps its attempts. One that is due
-- already, or whose attempt is running, keeps its place.
UPDATE hapax.delivery SET
    next_at = least(next_at, $3::timestamptz),
    manual = true
WHERE destination = $1::text AND position = $2::int8 AND state = 'retrying'
RETURNING 1
