-- The saga that keeps a key: it was started under it and has not ended.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT hapax.live_saga($1::text, $2::text, $3::text)
