-- Appends a heartbeat, and returns the live nodes, the destinations that they know, the partitions
-- that they own, and the current time. A node is live if its last sign within the lease ($2, in
-- milliseconds) does not say that it ends, or if it took a partition within the lease. All times
-- are of one clock. Times in the future are ignored, because the clock was set back since. $4 are
-- the destinations that this node knows. Each row also contains the newest version of what
-- operators have set.
WITH now AS MATERIALIZED (
    SELECT at, at - $2::int8 * interval '1 millisecond' AS since,
           at + $2::int8 * interval '1 millisecond' AS until
    FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS at OFFSET 0) AS clock
), said AS (
    INSERT INTO hapax.heartbeat (half, number, node, is_alive, seen_at, destinations)
    SELECT number >> 10 & 1, number, $1::text, true, at, $4::text[]
    FROM now, (SELECT nextval('hapax.heartbeat_number') AS number OFFSET 0) AS drawn
    RETURNING number
), last AS MATERIALIZED (
    SELECT DISTINCT ON (node) node, is_alive, destinations
    FROM hapax.heartbeat
    WHERE seen_at > (SELECT since FROM now) AND seen_at < (SELECT until FROM now)
    ORDER BY node, number DESC
), living AS (
    SELECT node
    FROM last
    WHERE is_alive
    UNION
    SELECT node
    FROM hapax.lease, now
    WHERE node IS NOT NULL AND taken_at > since AND taken_at < until
    UNION
    SELECT $1::text
)
SELECT living.node, lease.partition, lease.epoch, (SELECT number FROM said) AS number,
       clock_timestamp() AS at,
       (SELECT destinations FROM last WHERE last.node = living.node AND is_alive) AS destinations,
       coalesce(
           (SELECT version FROM hapax.declaration ORDER BY version DESC LIMIT 1), 0
       ) AS operators
FROM living
LEFT JOIN hapax.lease AS lease ON lease.node = living.node
ORDER BY living.node COLLATE "C", lease.partition COLLATE "C"
