-- Returns whether an unfinished delivery blocks an order key.
SELECT EXISTS (
    SELECT 1
    FROM hapax_delivery INDEXED BY hapax_delivery_unfinished
    WHERE destination = ?1
      AND order_key = ?2
      AND state IN ('retrying', 'blocked', 'dead')
)
