-- Reads a polling endpoint. Its previous tokens that are valid at a time (?2) are returned one after the
-- other, as bytes.
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
WHERE name = ?1
