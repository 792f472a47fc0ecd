-- Transactions of this database that have written something and are open for so many milliseconds ($1):
-- nobody sees their events, and the outbox cannot be cleared behind them. Of another role's a role
-- without pg_read_all_stats sees none.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT format('session %s (%s)', pid, coalesce(nullif(application_name, ''), usename)), xact_start
FROM pg_stat_activity
WHERE datname = current_database()
  AND backend_xid IS NOT NULL
  AND backend_type = 'client backend'
  AND xact_start < clock_timestamp() - $1::int8 * interval '1 millisecond'
UNION ALL
SELECT format('prepared transaction %L of %s', gid, owner), prepared
FROM pg_prepared_xacts
WHERE database = current_database()
  AND prepared < clock_timestamp() - $1::int8 * interval '1 millisecond'
ORDER BY 2
LIMIT 10
