-- Records that a feed stops at a gap, until an operator accepts it.
-- Only here: the SQLite store has no feeds.
UPDATE hapax.feed
SET gap = $2::text, gap_at = $3::timestamptz
WHERE name = $1::text AND gap IS NULL AND confirmed_lsn = $4::pg_lsn
