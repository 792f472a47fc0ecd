-- Lists up to ?2 order keys that an unfinished delivery blocks. A scheduled delivery does not block
-- its key, because it has left its place in the order. The query steps from key to key, so that it
-- does not read all deliveries that wait for one key.
WITH RECURSIVE blocked (order_key) AS (
    SELECT min(order_key)
    FROM hapax_delivery INDEXED BY hapax_delivery_unfinished
    WHERE destination = ?1
      AND order_key IS NOT NULL
      AND state IN ('retrying', 'blocked', 'dead')
    UNION ALL
    SELECT (
        SELECT min(next.order_key)
        FROM hapax_delivery AS next INDEXED BY hapax_delivery_unfinished
        WHERE next.destination = ?1
          AND next.order_key > blocked.order_key
          AND next.state IN ('retrying', 'blocked', 'dead')
    )
    FROM blocked
    WHERE blocked.order_key IS NOT NULL
)
SELECT order_key
FROM blocked
WHERE order_key IS NOT NULL
LIMIT ?2
