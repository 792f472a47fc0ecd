-- Reads the polling endpoint that has a token ($1), as its current or as a previous one while that is
-- valid, by the database's clock unless a time ($2) is given. Its previous tokens are returned while they
-- are valid.
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
WHERE endpoint.name = (
    SELECT own.name
    FROM hapax.poll_endpoint AS own
    WHERE own.token = $1::bytea
    UNION ALL
    SELECT own.name
    FROM hapax.poll_endpoint AS own
    WHERE own.old_token = $1::bytea
      AND own.old_token_until > coalesce($2::timestamptz, clock_timestamp())
    UNION ALL
    SELECT previous.endpoint
    FROM hapax.poll_previous_token AS previous
    WHERE previous.token = $1::bytea
      AND previous.valid_until > coalesce($2::timestamptz, clock_timestamp())
    LIMIT 1
)
