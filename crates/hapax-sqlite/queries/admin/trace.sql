-- Reads the state of an event (?1) at every partition; the caller keeps those that deliver its
-- shard: the row of the delivery if there is one, whether the partition has read past the event, and
-- the earlier delivery that blocks it.
SELECT opened.name, delivery.state, delivery.attempt, delivery.next_at, delivery.last_error,
       delivery.changed_at, delivery.reason, delivery.payload, delivery.headers,
       coalesce(place.frontier >= ?1, FALSE) AS is_read,
       (
           SELECT min(earlier.position)
           FROM hapax_delivery AS earlier INDEXED BY hapax_delivery_unfinished
           WHERE earlier.destination = opened.name
             AND earlier.order_key = delivery.order_key
             AND earlier.position < delivery.position
             AND delivery.state = 'blocked'
             AND earlier.state IN ('retrying', 'blocked', 'dead')
       ) AS behind
FROM hapax_destination AS opened
LEFT JOIN hapax_checkpoint AS place ON place.destination = opened.name
LEFT JOIN hapax_delivery AS delivery
    ON delivery.destination = opened.name AND delivery.position = ?1
ORDER BY opened.name
