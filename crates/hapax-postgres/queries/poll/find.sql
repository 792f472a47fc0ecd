-- Reads a polling endpoint. Its previous tokens are returned while they are valid, by the database's
-- clock unless a time ($2) is given.
SELECT endpoint.name, endpoint.tenant, endpoint.types, endpoint.token,
       ARRAY(
           SELECT endpoint.old_token
           WHERE endpoint.old_token_until > coalesce($2::timestamptz, clock_timestamp())
           UNION ALL
           SELECT previous.token
           FROM hapax.poll_previous_token AS previous
           WHERE previous.endpoint = endpoint.name
             AND previous.valid_until > coalesce($2::timestamptz, clock_timestamp())
       ) AS old_tokens,
       endpoint.secret, endpoint.frontier, endpoint.snapshot
FROM hapax.poll_endpoint AS endpoint
WHERE endpoint.name = $1::text
