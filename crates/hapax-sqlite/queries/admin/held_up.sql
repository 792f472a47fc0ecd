-- Counts the deliveries of an order key (?2) of a partition (?1) that a delivery before them (?3)
-- blocks. It visits at most ?4.
SELECT count(*) FILTER (WHERE state = 'blocked')
FROM (
    SELECT state
    FROM hapax_delivery INDEXED BY hapax_delivery_unfinished
    WHERE destination = ?1
      AND order_key = ?2
      AND position > ?3
      AND state IN ('retrying', 'blocked', 'dead')
    ORDER BY position
    LIMIT ?4
) AS unfinished
