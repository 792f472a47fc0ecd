-- Returns whether events after a frontier ($1) may have been purged: events with higher ids, or events
-- of transactions that were open when it was read, unless the purge was visible in that snapshot ($2,
-- null if no such event can be missing). Those transactions have drawn no id up to $3.
SELECT purged.last > $1::int8
    OR coalesce(
        $2::text IS NOT NULL
            AND purged.last > $3::int8
            AND NOT pg_visible_in_snapshot(purged.xid, $2::text::pg_snapshot),
        false
    ) AS is_purged
FROM hapax.outbox_purged AS purged
