-- Appends a sign that a node ends, and gives up all its partitions.
WITH said AS (
    INSERT INTO hapax.sign (half, number, node, lives, seen_at)
    SELECT number >> 10 & 1, number, $1::text, false, coalesce($2::timestamptz, clock_timestamp())
    FROM (SELECT nextval('hapax.sign_number') AS number OFFSET 0) AS drawn
)
UPDATE hapax.lease SET node = NULL
WHERE node = $1::text
