-- Like hold_open, but does not wait: divides by zero if another transaction is opening the
-- partition or has locked its lease, and if a purge is running that a new partition would have to
-- wait for. Returns the current owner.
-- Only here: the single writer of SQLite runs one job at a time.
SELECT 1 / CASE
    WHEN NOT pg_try_advisory_xact_lock('hapax.lease'::regclass::oid::int4, hashtext($1::text))
        THEN 0
    WHEN EXISTS (SELECT 1 FROM hapax.lease WHERE partition = $1::text)
        THEN coalesce((
            SELECT 1 FROM hapax.lease WHERE partition = $1::text FOR NO KEY UPDATE SKIP LOCKED
        ), 0)
    ELSE pg_try_advisory_xact_lock_shared('hapax.outbox_event'::regclass::oid::int4, 0)::int4
END, (SELECT node FROM hapax.lease WHERE partition = $1::text)
