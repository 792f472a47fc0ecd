-- Returns the saga that keeps a key: it was started under the key and has not ended.
-- Only here: the SQLite store reads it together with the key.
SELECT hapax.live_saga($1::text, $2::text, $3::text)
