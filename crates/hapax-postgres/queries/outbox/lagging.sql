-- Finds who keeps the ring from being turned on though it is due: parts that have not read the
-- segment which comes next.
-- Only here: the other store has no ring.
SELECT segment, part
FROM hapax.lagging($1::timestamptz, $2::timestamptz)
