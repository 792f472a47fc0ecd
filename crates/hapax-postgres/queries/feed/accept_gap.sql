-- Accepts the gap of a feed: it starts again at the position of its slot, which it creates again if
-- it is missing or lost. Returns the gap.
-- Only here: the SQLite store has no feeds.
UPDATE hapax.feed AS feed
SET gap = NULL, gap_at = NULL, confirmed_lsn = NULL
FROM (SELECT gap FROM hapax.feed WHERE name = $1::text FOR UPDATE) AS before
WHERE feed.name = $1::text AND feed.gap IS NOT NULL
RETURNING before.gap
