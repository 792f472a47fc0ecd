-- Reads where a part is.
-- Only here: the other store asks piece by piece, which costs it no round trips.
SELECT frontier, snapshot, settled, offered, written_at
FROM hapax.position
WHERE part = $1::text
