-- As hold_open, for whoever rather goes on than waits: divides by zero where somebody else is
-- opening the part or has hold of it, and where a purge runs that a new part would have to wait for.
-- And says who has it as yet.
-- Only here: a single writer does one thing at a time.
SELECT 1 / CASE
    WHEN NOT pg_try_advisory_xact_lock('hapax.lease'::regclass::oid::int4, hashtext($1::text))
        THEN 0
    WHEN EXISTS (SELECT 1 FROM hapax.lease WHERE part = $1::text)
        THEN coalesce((
            SELECT 1 FROM hapax.lease WHERE part = $1::text FOR NO KEY UPDATE SKIP LOCKED
        ), 0)
    ELSE pg_try_advisory_xact_lock_shared('hapax.outbox_event'::regclass::oid::int4, 0)::int4
END, (SELECT node FROM hapax.lease WHERE part = $1::text)
