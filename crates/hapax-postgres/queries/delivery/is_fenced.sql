-- Returns whether a partition whose settlement was rejected has a later owner or was removed.
-- Otherwise the database was set back under its owner.
-- Only here: the SQLite store reads it together with the epoch.
SELECT coalesce(
    (SELECT epoch > $2::int8 FROM hapax.lease WHERE partition = $1::text),
    (SELECT epoch >= $2::int8 FROM hapax.former_lease WHERE partition = $1::text),
    false
)
