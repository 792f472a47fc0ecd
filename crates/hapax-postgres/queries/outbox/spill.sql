-- Parks events of a segment ($1) that a part ($2) has not read, at most so many new ones ($3);
-- fences its owner, and says how many it parked. Nothing was left when it says none.
-- Only here: the other store has no ring.
SELECT hapax.spill($1::int4, $2::text, $3::int4, $4::timestamptz)
