-- Returns the order keys that an unfinished delivery blocks. Each key is looked up separately: see
-- release.
SELECT order_key
FROM unnest($2::text[]) AS asked (order_key)
WHERE EXISTS (
    SELECT 1
    FROM hapax.delivery AS delivery
    WHERE delivery.destination = $1::text
      AND delivery.order_key = asked.order_key
      AND delivery.state IN ('retrying', 'blocked', 'dead')
    OFFSET 0
)
