-- Reads the polling endpoint that has a token (?1), as its current or as a previous one while that is
-- valid at a time (?2). Its previous tokens that are valid are returned one after the other, as bytes.
SELECT name, tenant, types, token,
       unhex(
           coalesce(CASE WHEN old_token_until > ?2 THEN hex(old_token) END, '')
           || coalesce((
               SELECT group_concat(hex(previous.token), '')
               FROM hapax_poll_previous_token AS previous
               WHERE previous.endpoint = hapax_poll_endpoint.name AND previous.valid_until > ?2
           ), '')
       ) AS old_tokens,
       secret, frontier
FROM hapax_poll_endpoint
WHERE name = (
    SELECT name
    FROM hapax_poll_endpoint
    WHERE token = ?1
    UNION ALL
    SELECT name
    FROM hapax_poll_endpoint
    WHERE old_token = ?1 AND old_token_until > ?2
    UNION ALL
    SELECT endpoint
    FROM hapax_poll_previous_token
    WHERE token = ?1 AND valid_until > ?2
    LIMIT 1
)
