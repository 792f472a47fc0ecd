-- Lists up to $2 order keys that an unfinished delivery blocks. A scheduled delivery does not block
-- its key, because it has left its place in the order. The query steps from key to key, so that it
-- does not read all deliveries that wait for one key.
WITH RECURSIVE blocked AS (
    (SELECT order_key
     FROM hapax.delivery
     WHERE destination = $1::text
       AND order_key IS NOT NULL
       AND state IN ('retrying', 'blocked', 'dead')
     ORDER BY order_key
     LIMIT 1)
    UNION ALL
    SELECT (
        SELECT next.order_key
        FROM hapax.delivery AS next
        WHERE next.destination = $1::text
          AND next.order_key > blocked.order_key
          AND next.state IN ('retrying', 'blocked', 'dead')
        ORDER BY next.order_key
        LIMIT 1
    )
    FROM blocked
    WHERE blocked.order_key IS NOT NULL
)
SELECT order_key
FROM blocked
WHERE order_key IS NOT NULL
LIMIT $2::int8
