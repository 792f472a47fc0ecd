-- Counts the previous tokens of a polling endpoint (?1) that are valid at a time (?2), and returns when
-- the first of them ends.
SELECT count(*) AS number, min(valid_until) AS first_end
FROM (
    SELECT valid_until
    FROM hapax_poll_previous_token
    WHERE endpoint = ?1
    UNION ALL
    SELECT old_token_until
    FROM hapax_poll_endpoint
    WHERE name = ?1
)
WHERE valid_until > ?2
