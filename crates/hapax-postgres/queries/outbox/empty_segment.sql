-- Empties a segment ($1) that every part has read and that was closed longer ago than so many
-- milliseconds ($2), or takes more of what deliveries need out of it; says about how many events
-- that were. Fails when somebody is at work in it. The database's clock judges, unless a moment is
-- given ($3).
-- Only here: the other store deletes events one by one.
SELECT hapax.empty_segment($1::int4, $2::int8, $3::timestamptz)
