-- Parks events of a segment ($1) that a part ($2) has not read, so many at once ($3) and for so many
-- milliseconds ($4); fences its owner, and says how many it parked. Nothing was left when it says
-- none.
-- Only here: the other store has no ring.
SELECT hapax.spill($1::int4, $2::text, $3::int4, $4::int8, $5::timestamptz)
