-- Enters and finishes many keys in one transaction, each of them by the rules of enter or finish, and
-- returns those that were written. No key occurs twice. For the others, the single statements find out
-- why. All members of a group wait for this statement, so it waits for no other transaction: neither
-- for one that is using a key, nor for one that has locked a row.
-- Only here: the single writer of SQLite runs its jobs one by one, in one transaction.
WITH clock AS MATERIALIZED (
    SELECT at, date_trunc('milliseconds', at) AS entered_at
    FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS at) AS reading
), entry AS MATERIALIZED (
    SELECT unnest($2::text[]) AS tenant, unnest($3::text[]) AS operation, unnest($4::text[]) AS key,
           unnest($5::bytea[]) AS fingerprint, unnest($6::int8[]) AS lease,
           unnest($7::bytea[]) AS request, unnest($8::text[]) AS on_expired,
           unnest($9::int8[]) AS retention, unnest($10::text[]) AS recovery_point,
           unnest($22::text[]) AS owner
), response AS MATERIALIZED (
    SELECT unnest($11::text[]) AS tenant, unnest($12::text[]) AS operation, unnest($13::text[]) AS key,
           unnest($14::int8[]) AS epoch, unnest($15::timestamptz[]) AS created_at,
           unnest($16::text[]) AS state, unnest($17::int2[]) AS status,
           unnest($18::bytea[]) AS headers, unnest($19::bytea[]) AS body,
           unnest($20::int8[]) AS retention, unnest($21::text[]) AS resource_id
), entered AS (
    INSERT INTO hapax.idempotency_key AS written
        (tenant, operation, key, fingerprint, state, owner, lease_until, recovery_point, request,
         on_expired, created_at, expires_at)
    SELECT entry.tenant, entry.operation, entry.key, entry.fingerprint, 'in_progress', entry.owner,
           entered_at + entry.lease * interval '1 millisecond', entry.recovery_point, entry.request,
           entry.on_expired, entered_at, entered_at + entry.retention * interval '1 millisecond'
    FROM entry, clock
    WHERE CASE
              WHEN (
                  SELECT true
                  FROM hapax.idempotency_key AS known
                  WHERE known.tenant = entry.tenant AND known.operation = entry.operation
                    AND known.key = entry.key
              ) THEN false
              ELSE pg_try_advisory_xact_lock(
                  hapax.key_lock(entry.tenant, entry.operation, entry.key))
          END
    ON CONFLICT (key, operation, tenant) DO NOTHING
    RETURNING written.tenant, written.operation, written.key, written.epoch, written.created_at
), owned AS MATERIALIZED (
    SELECT response.tenant, response.operation, response.key, response.state, response.status,
           response.headers, response.body, response.retention, response.resource_id
    FROM response
    -- Row by row, along the primary key: the planner would read all keys in progress.
    CROSS JOIN LATERAL (
        SELECT known.epoch, known.created_at, known.state
        FROM hapax.idempotency_key AS known
        WHERE known.tenant = response.tenant AND known.operation = response.operation
          AND known.key = response.key
        OFFSET 0
        FOR UPDATE SKIP LOCKED
    ) AS known
    WHERE known.epoch = response.epoch AND known.created_at = response.created_at
      AND known.state = 'in_progress'
), finished AS (
    UPDATE hapax.idempotency_key AS written SET
        state = owned.state,
        lease_until = NULL,
        owner = NULL,
        recovery_data = NULL,
        request = NULL,
        response_status = owned.status,
        response_headers = owned.headers,
        response_body = owned.body,
        resource_id = owned.resource_id,
        completed_at = clock.at,
        expires_at = clock.at + owned.retention * interval '1 millisecond'
    FROM owned, clock
    WHERE written.tenant = owned.tenant AND written.operation = owned.operation
      AND written.key = owned.key
    RETURNING written.tenant, written.operation, written.key
)
SELECT tenant, operation, key, epoch, created_at
FROM entered
UNION ALL
SELECT tenant, operation, key, NULL::int8, NULL::timestamptz
FROM finished
