-- Lists transactions of this database that have written something and have been open for more than
-- $1 milliseconds: their events are not visible, and the outbox cannot be purged after them. A role
-- without pg_read_all_stats does not see transactions of other roles.
-- Only here: no transaction of the SQLite store is older than its bound.
SELECT format('session %s (%s)', pid, coalesce(nullif(application_name, ''), usename)) AS holder,
       xact_start AS since
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
