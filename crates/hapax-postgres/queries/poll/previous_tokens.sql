-- Counts the previous tokens of a polling endpoint ($1) that are valid now, by the database's clock
-- unless a time ($2) is given. Returns that time too, and when the first of them ends.
WITH now AS MATERIALIZED (
    SELECT coalesce($2::timestamptz, clock_timestamp()) AS time
)
SELECT now.time, count(previous.valid_until) AS number, min(previous.valid_until) AS first_end
FROM now
LEFT JOIN (
    SELECT valid_until
    FROM hapax.poll_previous_token
    WHERE endpoint = $1::text
    UNION ALL
    SELECT old_token_until
    FROM hapax.poll_endpoint
    WHERE name = $1::text
) AS previous ON previous.valid_until > now.time
GROUP BY now.time
