-- Lists the order keys that something unfinished stands in the way of: a scheduled delivery does
-- not, for it has left its place in the order.
SELECT DISTINCT order_key
FROM hapax.delivery
WHERE destination = $1::text
  AND order_key IS NOT NULL
  AND state IN ('retrying', 'blocked', 'dead')
ORDER BY order_key
