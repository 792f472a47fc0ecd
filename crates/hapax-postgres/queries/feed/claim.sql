-- Takes a feed over from an earlier feeder. Waits for the lock on the row, so that the position is
-- that of the last transaction which could still be committed under the earlier epoch.
-- Only here: the SQLite store has no feeds.
UPDATE hapax.feed
SET epoch = epoch + 1, slot = $2::text, timeline = $3::int8
WHERE name = $1::text AND gap IS NULL AND confirmed_lsn IS NOT NULL
RETURNING epoch, confirmed_lsn
