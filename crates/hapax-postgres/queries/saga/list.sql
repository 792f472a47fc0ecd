-- Lists sagas of some states by id. The input is left out, because it can be long. Each state is
-- looked up separately, so that the few sagas that need attention are not searched for among all
-- that have ended.
SELECT id, name, version, tenant, ''::bytea AS input, headers, state, compensating, reason_code,
       reason_detail, deadline_at, epoch, wake_at, waiting_for, created_at, ended_at
FROM unnest($1::text[]) AS asked (of_state)
CROSS JOIN LATERAL (
    SELECT saga.id, saga.name, saga.version, saga.tenant, saga.headers, saga.state, saga.compensating,
           saga.reason_code, saga.reason_detail, saga.deadline_at, saga.epoch, saga.wake_at,
           saga.waiting_for, saga.created_at, saga.ended_at
    FROM hapax.saga AS saga
    WHERE saga.state = asked.of_state
      AND saga.id > $2::text COLLATE "C"
      AND ($3::text IS NULL OR saga.name = $3::text)
      AND ($4::int8 IS NULL OR saga.version = $4::int8)
    ORDER BY saga.id
    LIMIT $5::int8
) AS listed
ORDER BY id
LIMIT $5::int8
