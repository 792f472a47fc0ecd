-- Accepts a message for a consumer once.
-- Only here: the SQLite store has no SQL contract.
SELECT hapax.accept($1::text, $2::text, $3::bytea, $4::text)
