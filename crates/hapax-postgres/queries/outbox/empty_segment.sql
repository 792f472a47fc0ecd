-- Empties a closed segment ($1) that every part has read and that was written before a moment ($2);
-- says about how many events that were. Fails when somebody is at work in it.
-- Only here: the other store deletes events one by one.
SELECT hapax.empty_segment($1::int4, $2::timestamptz, $3::timestamptz)
