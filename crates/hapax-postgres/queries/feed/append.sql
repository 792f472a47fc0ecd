-- Appends a batch of changes as events, in their order. A change that cannot be an event is set
-- aside, with the reason and its payload, because the source does not send it again.
-- Only here: the SQLite store has no feeds.
WITH change AS MATERIALIZED (
    SELECT place, row_key, problem, event_id, type, tenant, aggregate_type, aggregate_id, sequence,
           payload, content_type, headers, available_at AS available,
           hapax.moment_of(available_at) AS available_at,
           hapax.moment_of(created_at) AS created_at
    FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                $10::text[], $11::int8[], $12::bytea[], $13::text[], $14::text[], $15::text[],
                $16::text[])
         WITH ORDINALITY AS change
             (row_key, problem, event_id, type, tenant, aggregate_type, aggregate_id, sequence,
              payload, content_type, headers, available_at, created_at, place)
), worded AS MATERIALIZED (
    SELECT place, row_key, problem, event_id, type, tenant, aggregate_type, aggregate_id, sequence,
           payload, content_type, available, available_at, created_at,
           CASE WHEN content_type IS NULL THEN hapax.text_of(payload)
                ELSE translate(encode(payload, 'base64'), E'\n', '') END AS words,
           CASE WHEN content_type IS NULL THEN own.headers - 'content-type'
                ELSE jsonb_build_object('content-type', content_type) || own.headers END AS headers
    FROM change
    CROSS JOIN LATERAL (
        SELECT CASE WHEN change.headers IS NULL THEN '{}'::jsonb
                    ELSE hapax.row_headers(change.headers) END AS headers
    ) AS own
), judged AS MATERIALIZED (
    SELECT place, row_key, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload,
           words, headers, available_at, created_at,
           CASE
               WHEN problem IS NOT NULL THEN problem
               WHEN lower(event_id) !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
               THEN 'the event id is no UUID'
               WHEN available IS NOT NULL AND available_at IS NULL
               THEN 'the event is available at no time'
               ELSE hapax.row_problem(
                   type, octet_length(payload)::int8, words,
                   CASE WHEN content_type IS NULL AND words IS NOT NULL THEN hapax.is_json(words)
                        ELSE true END,
                   headers, aggregate_type, aggregate_id, tenant, available_at)
           END AS problem
    FROM worded
), refused AS (
    INSERT INTO hapax.set_aside (source, row_key, problem, payload, set_aside_at)
    SELECT $1::text, row_key, problem,
           coalesce(hapax.text_of(payload), encode(payload, 'escape')), $2::timestamptz
    FROM judged
    WHERE problem IS NOT NULL
    ON CONFLICT (source, row_key) DO NOTHING
    RETURNING row_key, problem
), inserted AS (
    INSERT INTO hapax.outbox_event
        (shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
         created_at, available_at)
    SELECT hapax.shard_of(aggregate_type, aggregate_id, event_id), event_id, type, tenant,
           aggregate_type, aggregate_id, sequence, payload, headers, created_at, available_at
    FROM (
        SELECT coalesce(event_id::uuid, hapax.row_event_id($3::text, row_key)) AS event_id, type,
               tenant, aggregate_type, aggregate_id, sequence, words AS payload,
               headers::text AS headers, available_at,
               CASE WHEN created_at >= '1970-01-01 00:00:00+00'
                         AND created_at < '10000-01-01 00:00:00+00'
                    THEN date_trunc('milliseconds', created_at)
                    ELSE $2::timestamptz END AS created_at
        FROM judged
        WHERE problem IS NULL
        ORDER BY place
    ) AS event
    RETURNING 1
)
SELECT (SELECT count(*) FROM inserted) AS appended, (SELECT count(*) FROM refused) AS set_aside,
       ARRAY(SELECT row_key || ': ' || problem FROM refused LIMIT 5) AS examples
