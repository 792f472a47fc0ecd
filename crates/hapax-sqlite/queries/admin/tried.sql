-- Counts the latest attempts since a time (?1), of which ?2 are visited, by destination and outcome,
-- with the time of the earliest of them.
-- Only here: the PostgreSQL store reads all recent activity in one statement.
SELECT destination, outcome = 'delivered' AS is_delivered, outcome <> 'interrupted' AS is_counted,
       count(*) AS number, min(started_at) AS since
FROM (
    SELECT destination, outcome, started_at
    FROM hapax_attempt
    ORDER BY id DESC
    LIMIT ?2
) AS last
WHERE started_at >= ?1
GROUP BY destination, is_delivered, is_counted
