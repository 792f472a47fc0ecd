-- Keeps other movers of the same table away until the transaction ends: two at once could turn the
-- order of a key round. Divides by zero when one is at work.
-- Only here: the other store takes in no tables.
SELECT 1 / pg_try_advisory_xact_lock(hashtext('hapax.set_aside'), $1::int4)::int4
