-- Makes a delivery due that waits for its next attempt, and keeps its attempts. One that is due
-- already, or whose attempt is running, keeps its place.
UPDATE hapax_delivery SET
    next_at = min(next_at, ?3),
    manual = 1
WHERE destination = ?1 AND position = ?2 AND state = 'retrying'
