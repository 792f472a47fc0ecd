-- Takes the lock by which producers know that a relay sleeps, for this session: 'ours' with the
-- lock, 'other' if another relay has it, and 'none' if a transaction is open that has emitted
-- events and whose commit will not notify. It is 'never' on a server that may prepare transactions,
-- because a transaction that has notified cannot be prepared. The server ends a session with the
-- lock that is silent for too long: its process may be stopped or hang, and commits would notify it
-- for ever.
-- Only here: no other process writes to a SQLite store without notifying its relay.
SELECT holder, set_config(
    'idle_session_timeout', CASE holder WHEN 'ours' THEN '30s' ELSE '0' END, false
) AS silent_max
FROM (
    SELECT CASE
        WHEN current_setting('max_prepared_transactions')::int4 > 0 THEN 'never'
        WHEN pg_try_advisory_lock('hapax.outbox_event'::regclass::oid::int4, 1) THEN 'ours'
        WHEN EXISTS (
            SELECT FROM pg_locks
            WHERE locktype = 'advisory'
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND classid = 'hapax.outbox_event'::regclass::oid
              AND objid = 1
              AND objsubid = 2
              AND mode = 'ExclusiveLock'
              AND granted
        ) THEN 'other'
        ELSE 'none'
    END AS holder
    OFFSET 0
) AS asked
