-- Turns the ring on when this turn began longer ago than so many milliseconds ($1), events lie in it
-- and the next segment is empty; says whether it did. The database's clock judges, unless a moment
-- is given ($2).
-- Only here: the other store deletes events one by one.
SELECT hapax.turn_on($1::int8, $2::timestamptz)
