-- Takes a message for a consumer, once.
SELECT hapax.accept($1::text, $2::text, $3::bytea, $4::text)
