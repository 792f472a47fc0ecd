-- Records that the effect of a message was written, and its result.
-- Only here: the SQLite store has no SQL contract.
SELECT hapax.processed($1::text, $2::text, $3::text, $4::text)::text
