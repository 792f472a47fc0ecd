-- Releases the claimed key without a response.
-- Only here: the SQLite store has no SQL contract.
SELECT hapax.release($1::text, $2::text, $3::text)::text
