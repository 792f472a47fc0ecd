-- Says which cluster counts the xids, and on which timeline: they begin anew when a database is
-- restored on another one, and go back when a standby takes over that had not heard of all of them.
-- Only here: the other store has no xids.
SELECT system_identifier || '/' || CASE
    WHEN pg_is_in_recovery() THEN '-'
    ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
END
FROM pg_control_system()
