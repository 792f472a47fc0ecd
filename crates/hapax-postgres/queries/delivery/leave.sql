-- Appends a sign that a node ends, and gives up all its partitions.
WITH said AS (
    INSERT INTO hapax.heartbeat (half, number, node, is_alive, seen_at)
    SELECT number >> 10 & 1, number, $1::text, false, coalesce($2::timestamptz, clock_timestamp())
    FROM (SELECT nextval('hapax.heartbeat_number') AS number OFFSET 0) AS drawn
)
UPDATE hapax.lease SET node = NULL
WHERE node = $1::text
