-- Records that a feed stops at a gap, until an operator accepts it: unless the feed has moved on from
-- the position $7 meanwhile, or has a row although it had none.
-- Only here: the SQLite store has no feeds.
INSERT INTO hapax.feed AS feed
    (name, slot, system_identifier, timeline, gap, gap_at, updated_at)
VALUES ($1::text, $2::text, $3::text, $4::int8, $5::text, $6::timestamptz, $6::timestamptz)
ON CONFLICT (name) DO UPDATE
SET gap = excluded.gap, gap_at = excluded.gap_at
WHERE feed.gap IS NULL AND feed.confirmed_lsn = $7::pg_lsn
