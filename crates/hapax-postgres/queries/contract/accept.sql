-- Takes a message for a consumer, once.
-- Only here: the contract of the other store is its library.
SELECT hapax.accept($1::text, $2::text, $3::bytea, $4::text)
