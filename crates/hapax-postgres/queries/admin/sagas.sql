-- Lists sagas of some states by id, like saga/list, of one tenant ($8) or of all, and visits at most
-- $7 rows. Every row contains the number of visited rows and the id at which the visit ended; if
-- nothing matches, one row contains only these. For a tenant, no sagas of other tenants are visited,
-- because that id is returned, and an id is a name that another tenant may have chosen.
WITH looked AS MATERIALIZED (
    SELECT listed.id, listed.name, listed.version
    FROM unnest($1::text[]) AS asked (of_state)
    CROSS JOIN LATERAL (
        (
            SELECT saga.id, saga.name, saga.version
            FROM hapax.saga AS saga
            WHERE $8::text IS NULL
              AND saga.state = asked.of_state
              AND saga.id > $2::text COLLATE "C"
            ORDER BY saga.id
            LIMIT $7::int8
        ) UNION ALL (
            SELECT saga.id, saga.name, saga.version
            FROM hapax.saga AS saga
            WHERE saga.tenant = $8::text
              AND saga.state = asked.of_state
              AND saga.id > $2::text COLLATE "C"
            ORDER BY saga.id
            LIMIT $7::int8
        )
    ) AS listed
    ORDER BY id
    LIMIT $7::int8
), matching AS (
    SELECT id
    FROM looked
    WHERE ($3::text IS NULL OR name = $3::text)
      AND ($6::int8 IS NULL OR version = $6::int8)
    ORDER BY id
    LIMIT $4::int8
)
SELECT saga.id, saga.name, saga.version, saga.tenant, ''::bytea AS input, saga.headers, saga.state,
       saga.compensating, saga.reason_code, saga.reason_detail, saga.deadline_at, saga.epoch, saga.wake_at,
       saga.waiting_for, saga.created_at, saga.ended_at, saga.lease_until, clock.at,
       ends.count AS looked, ends.id AS end_id
FROM (SELECT coalesce($5::timestamptz, clock_timestamp()) AS at) AS clock
CROSS JOIN (SELECT count(*) AS count, max(id) AS id FROM looked) AS ends
LEFT JOIN (matching JOIN hapax.saga AS saga ON saga.id = matching.id) ON true
ORDER BY saga.id
