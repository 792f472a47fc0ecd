-- Lists the feeds that have ever started, or the one of this name.
-- Only here: the SQLite store has no feeds.
SELECT name, slot, system_identifier, timeline, confirmed_lsn::text AS confirmed_lsn, gap, gap_at,
       updated_at,
       (SELECT count(*) FROM hapax.set_aside WHERE source = 'feeds.' || name) AS set_aside
FROM hapax.feed
WHERE $1::text IS NULL OR name = $1::text
ORDER BY name
