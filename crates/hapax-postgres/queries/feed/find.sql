-- Reads how far a feed has come, and whether it stopped at a gap.
-- Only here: the SQLite store has no feeds.
SELECT system_identifier, timeline, confirmed_lsn, gap
FROM hapax.feed
WHERE name = $1::text
