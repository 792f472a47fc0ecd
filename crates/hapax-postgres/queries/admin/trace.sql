-- Reads the state of some events ($1) at every partition that delivers their shard: the row of the
-- delivery if there is one, whether the partition has read past the event, and the earlier delivery
-- that blocks it.
WITH event AS MATERIALIZED (
    SELECT found.id, found.event_id, found.shard, found.xid
    FROM unnest($1::int8[]) AS asked (id)
    CROSS JOIN LATERAL (
        SELECT event.id, event.event_id, event.shard, event.xid
        FROM hapax.outbox_event AS event
        WHERE event.id = asked.id AND event.segment IN (((asked.id >> 36) & 7)::int2, -1)
        LIMIT 1
    ) AS found
), partition AS MATERIALIZED (
    SELECT name, disabled_reason, count(*) OVER (PARTITION BY split_part(name, '/', 1)) AS partitions
    FROM hapax.destination
)
SELECT partition.name, partition.disabled_reason, delivery.state, delivery.attempt, delivery.next_at,
       delivery.order_key, delivery.last_error, delivery.changed_at, delivery.reason,
       (event.id <= position.frontier AND (
            position.snapshot IS NULL
            OR event.id <= split_part(position.snapshot, ' ', 2)::int8
            OR pg_visible_in_snapshot(
                event.xid, split_part(position.snapshot, ' ', 1)::pg_snapshot)))
            IS TRUE AS is_read,
       (SELECT earlier.position
        FROM hapax.delivery AS earlier
        WHERE earlier.destination = partition.name
          AND earlier.order_key = delivery.order_key
          AND earlier.position < delivery.position
          AND delivery.state = 'blocked'
          AND earlier.state IN ('retrying', 'blocked', 'dead')
        ORDER BY earlier.position
        LIMIT 1) AS behind,
       event.id, event.event_id::text, delivery.payload, delivery.headers
FROM event
CROSS JOIN partition
LEFT JOIN hapax.position AS position ON position.partition = partition.name
LEFT JOIN hapax.delivery AS delivery
    ON delivery.destination = partition.name AND delivery.position = event.id
WHERE split_part(partition.name, '/', 2) = ''
   OR split_part(partition.name, '/', 2)::int8 = event.shard % partition.partitions
ORDER BY event.id, partition.name
