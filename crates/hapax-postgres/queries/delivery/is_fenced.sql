-- Says of a part whose settlement was refused whether somebody else has it: a later owner, or nobody,
-- for it was removed. Otherwise the database was set back under its owner.
-- Only here: the other store finds it beside the epoch.
SELECT coalesce(
    (SELECT epoch > $2::int8 FROM hapax.lease WHERE part = $1::text),
    (SELECT epoch >= $2::int8 FROM hapax.former_lease WHERE part = $1::text),
    false
)
