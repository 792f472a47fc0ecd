-- Turns the ring on when the first event of this turn was written before a moment ($1) and the next
-- segment is empty; says whether it did.
-- Only here: the other store deletes events one by one.
SELECT hapax.turn_on($1::timestamptz, $2::timestamptz)
