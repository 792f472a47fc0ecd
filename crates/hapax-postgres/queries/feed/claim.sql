-- Takes a feed over from an earlier feeder, if its row is still the one that was checked: of the server
-- $5 and its timeline $6, and at the position $4 or, if the earlier feeder has committed meanwhile,
-- after it. Waits for the lock on the row, so that the position is that of the last transaction which
-- could still be committed under the earlier epoch.
-- Only here: the SQLite store has no feeds.
UPDATE hapax.feed
SET epoch = epoch + 1, slot = $2::text, timeline = $3::int8
WHERE name = $1::text AND gap IS NULL AND confirmed_lsn >= $4::pg_lsn
      AND system_identifier = $5::text AND timeline = $6::int8
RETURNING epoch, confirmed_lsn
