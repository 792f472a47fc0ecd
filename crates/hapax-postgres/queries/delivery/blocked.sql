-- Returns those of the order keys ($2) that an unfinished delivery blocks.
-- Only here: the SQLite store asks for each key separately.
SELECT asked.order_key
FROM unnest($2::text[]) AS asked (order_key)
CROSS JOIN LATERAL (
    SELECT 1
    FROM hapax.delivery AS unfinished
    WHERE unfinished.destination = $1::text
      AND unfinished.order_key = asked.order_key
      AND unfinished.state IN ('retrying', 'blocked', 'dead')
    LIMIT 1
) AS held
