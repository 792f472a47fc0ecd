-- Finds who keeps the ring from being turned on though this turn began longer ago than so many
-- milliseconds ($1): parts that have not read the segment which comes next, and was closed longer
-- ago than that ($2). The database's clock judges, unless a moment is given ($3).
-- Only here: the other store has no ring.
SELECT segment, part
FROM hapax.lagging($1::int8, $2::int8, $3::timestamptz)
