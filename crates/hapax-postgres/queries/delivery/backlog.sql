-- Computes the backlog of each of these partitions ($1) in one snapshot: the events after its
-- frontier that are not settled, counted up to $2 and beyond that estimated from the state of the
-- outbox; the parked deliveries and the dead letters, counted up to $3 each; when the first of them
-- became due by the time $4, among the first $2 events, the first 100 deliveries that are due, and
-- the first 100 that have failed or are blocked among the first $3 parked ones; and the newest
-- checkpoint. If none of $2 events is due, an event after them can be: it was written after the
-- last of them, so that time is returned. The id of the checkpoint is null if the partition was
-- never opened, whose frontier is where its destination starts, and has the settlement -1 if the
-- sequence has not yet reached the checkpoint's number.
-- Only here: the SQLite store asks in several statements, because it has no round trips.
SELECT asked.name, backlog.beyond, backlog.parked, backlog.dead, backlog.oldest_parked,
       backlog.oldest_beyond, backlog.checkpoint_epoch, backlog.checkpoint_settlement,
       backlog.frontier
FROM unnest($1::text[]) AS asked (name)
CROSS JOIN LATERAL (
    WITH partition AS MATERIALIZED (
        SELECT frontier, hapax.positions(settled) - int8multirange(int8range(NULL, frontier, '[]'))
                   AS settled,
               checkpoint_epoch, checkpoint_settlement
        FROM (
            SELECT coalesce(max(frontier), (
                       SELECT start.frontier
                       FROM hapax.start AS start
                       WHERE start.destination = split_part(asked.name, '/', 1)
                   ), 0) AS frontier,
                   coalesce(max(settled), '') AS settled,
                   max(checkpoint_epoch) AS checkpoint_epoch,
                   max(CASE
                       WHEN checkpoint_number <= (
                           SELECT last_value - (NOT is_called)::int4 FROM hapax.checkpoint_number
                       ) THEN checkpoint_settlement
                       ELSE -1
                   END) AS checkpoint_settlement
            FROM hapax.position
            WHERE partition = asked.name
        ) AS found
    ), beyond AS MATERIALIZED (
        SELECT count(*) AS number
        FROM (
            SELECT 1
            FROM hapax.outbox_event
            WHERE id > (SELECT frontier FROM partition) AND segment <> -1
            ORDER BY id
            LIMIT $2::int8
        ) AS counted
    )
    SELECT CASE
        WHEN beyond.number < $2::int8 THEN beyond.number
        ELSE greatest(beyond.number, hapax.backlog(partition.frontier))
    END - (
        SELECT coalesce(sum(upper(run) - lower(run)), 0)::int8
        FROM unnest(partition.settled) AS runs (run)
    ) AS beyond, (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM hapax.delivery
            WHERE destination = asked.name AND state IN ('scheduled', 'retrying', 'blocked')
            ORDER BY position
            LIMIT $3::int8
        ) AS waiting
    ) AS parked, (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM hapax.delivery
            WHERE destination = asked.name AND state = 'dead'
            ORDER BY position
            LIMIT $3::int8
        ) AS given_up
    ) AS dead, (
        SELECT min((
            SELECT greatest(event.created_at, event.available_at)
            FROM hapax.outbox_event AS event
            WHERE event.id = due.position
              AND event.segment IN ((due.position >> 36 & 7)::int2, -1::int2)
            LIMIT 1
        ))
        FROM (
            (
                SELECT position
                FROM hapax.delivery
                WHERE destination = asked.name AND state IN ('scheduled', 'retrying')
                  AND next_at <= $4::timestamptz
                ORDER BY next_at, position
                LIMIT 100
            ) UNION ALL (
                SELECT position
                FROM (
                    SELECT position, state
                    FROM hapax.delivery
                    WHERE destination = asked.name AND state IN ('scheduled', 'retrying', 'blocked')
                    ORDER BY position
                    LIMIT $3::int8
                ) AS parked
                WHERE state <> 'scheduled'
                ORDER BY position
                LIMIT 100
            )
        ) AS due
    ) AS oldest_parked, (
        SELECT coalesce(
            min(unread.due_at) FILTER (
                WHERE unread.due_at <= $4::timestamptz AND NOT partition.settled @> unread.id),
            CASE WHEN count(*) = $2::int8 THEN max(unread.created_at) END,
            min(unread.due_at) FILTER (WHERE NOT partition.settled @> unread.id)
        )
        FROM (
            SELECT id, created_at, greatest(created_at, available_at) AS due_at
            FROM hapax.outbox_event
            WHERE id > partition.frontier AND segment <> -1
            ORDER BY id
            LIMIT $2::int8
        ) AS unread
    ) AS oldest_beyond,
    partition.checkpoint_epoch, partition.checkpoint_settlement, partition.frontier
    FROM partition, beyond
) AS backlog
