-- Reads the state of every partition in one snapshot: the declaration of its destination; its
-- owner, and whether that node is live by the rule of its lease ($2, in milliseconds; see
-- delivery/attend); and its backlog: the events after its frontier, of which at most $1 are
-- visited, and the deliveries, counted up to $5. If none of $1 events is due, an event after them can
-- be, which was written after the last of them. An actor of a tenant ($4) only sees the partitions of
-- destinations that take only this tenant's events.
-- The destination is compared as a range with one value, so that only the index that starts with
-- the destination gives the order. With another index, a partition with a small backlog would cost
-- a scan of the deliveries of all others. For the next due delivery, only one index gives the
-- order, so the destination is compared for equality: the planner assumes that a range has few
-- rows, and would rather sort them all.
WITH now AS MATERIALIZED (
    SELECT at, at - $2::int8 * interval '1 millisecond' AS since
    FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS at OFFSET 0) AS clock
), word AS MATERIALIZED (
    SELECT DISTINCT ON (node) node, is_alive, seen_at
    FROM hapax.heartbeat
    ORDER BY node, number DESC
), living AS MATERIALIZED (
    SELECT node FROM word, now WHERE is_alive AND seen_at > since
    UNION
    SELECT node FROM hapax.lease, now WHERE node IS NOT NULL AND taken_at > since
), partition AS MATERIALIZED (
    SELECT opened.name, opened.disabled_at, opened.disabled_reason, said.paused_at, said.paused_by,
           said.spec, lease.node, coalesce(place.frontier, 0) AS frontier,
           coalesce(place.written_at, opened.opened_at) AS written_at,
           hapax.positions(coalesce(place.settled, ''))
               - int8multirange(int8range(NULL, coalesce(place.frontier, 0), '[]')) AS settled,
           nullif(split_part(opened.name, '/', 2), '')::int8 AS number,
           count(*) OVER (PARTITION BY split_part(opened.name, '/', 1)) AS partitions
    FROM hapax.destination AS opened
    LEFT JOIN hapax.declaration AS said ON said.name = split_part(opened.name, '/', 1)
    LEFT JOIN hapax.lease AS lease ON lease.partition = opened.name
    LEFT JOIN hapax.position AS place ON place.partition = opened.name
    WHERE said.removed_at IS NULL
      AND ($4::text IS NULL OR said.spec::jsonb ->> 'tenant' = $4::text)
)
SELECT partition.name, partition.disabled_at, partition.disabled_reason, partition.paused_at,
       partition.paused_by, partition.spec, partition.node,
       coalesce(partition.node IN (SELECT node FROM living), false) AS lives, word.seen_at,
       EXISTS (SELECT FROM living) AS any_lives, partition.written_at, beyond.looked,
       beyond.number AS unread, beyond.oldest AS oldest_unread, parked.number AS parked,
       oldest.due_at AS oldest_parked, dead.number AS dead, next.position, next.attempt,
       next.next_at, next.last_error, next.changed_at, now.at,
       hapax.backlog(partition.frontier) / partition.partitions AS about
FROM partition
CROSS JOIN now
LEFT JOIN word ON word.node = partition.node
CROSS JOIN LATERAL (
    SELECT count(*) AS looked, count(*) FILTER (WHERE waits) AS number,
           coalesce(
               min(due_at) FILTER (WHERE waits AND due_at <= now.at),
               CASE WHEN count(*) = $1::int8 THEN max(created_at) END,
               min(due_at) FILTER (WHERE waits)
           ) AS oldest
    FROM (
        SELECT (partition.number IS NULL OR shard % partition.partitions = partition.number)
               AND NOT partition.settled @> id AS waits,
               created_at, greatest(created_at, available_at) AS due_at
        FROM hapax.outbox_event
        WHERE id > partition.frontier AND segment <> -1
        ORDER BY id
        LIMIT $1::int8
    ) AS unread
) AS beyond
CROSS JOIN LATERAL (
    SELECT count(*) AS number
    FROM (
        SELECT destination, position
        FROM hapax.delivery
        WHERE destination >= partition.name AND destination <= partition.name
          AND state IN ('scheduled', 'retrying', 'blocked')
        ORDER BY destination, position
        LIMIT $5::int8
    ) AS waiting
) AS parked
CROSS JOIN LATERAL (
    SELECT min((
               SELECT greatest(event.created_at, event.available_at)
               FROM hapax.outbox_event AS event
               WHERE event.id = first.position
                 AND event.segment IN ((first.position >> 36 & 7)::int2, -1::int2)
               LIMIT 1
           )) AS due_at
    FROM (
        (
            SELECT position
            FROM hapax.delivery
            WHERE destination = partition.name AND state IN ('scheduled', 'retrying')
              AND next_at <= now.at
            ORDER BY next_at, position
            LIMIT 100
        ) UNION ALL (
            SELECT position
            FROM (
                SELECT position, state
                FROM hapax.delivery
                WHERE destination >= partition.name AND destination <= partition.name
                  AND state IN ('scheduled', 'retrying', 'blocked')
                ORDER BY destination, position
                LIMIT $5::int8
            ) AS parked
            WHERE state <> 'scheduled'
            ORDER BY position
            LIMIT 100
        )
    ) AS first
) AS oldest
CROSS JOIN LATERAL (
    SELECT count(*) AS number
    FROM (
        SELECT destination, position
        FROM hapax.delivery
        WHERE destination >= partition.name AND destination <= partition.name AND state = 'dead'
        ORDER BY destination, position
        LIMIT $5::int8
    ) AS given_up
) AS dead
LEFT JOIN LATERAL (
    SELECT position, attempt, next_at, last_error, changed_at
    FROM (
        SELECT destination, position, state, attempt, next_at, last_error, changed_at
        FROM hapax.delivery
        WHERE destination = partition.name AND state IN ('scheduled', 'retrying')
        ORDER BY next_at, position
        LIMIT 100
    ) AS due
    WHERE state = 'retrying'
    ORDER BY next_at, position
    LIMIT 1
) AS next ON true
ORDER BY partition.name
