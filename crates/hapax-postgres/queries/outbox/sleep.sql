-- Takes the lock by which producers know that a relay sleeps, for this session: 'ours' with the
-- lock, 'other' if another relay has it, and 'none' if a transaction is open that has emitted
-- events and whose commit will notify nobody.
-- Only here: no other process writes to a SQLite store without notifying its relay.
SELECT CASE
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
