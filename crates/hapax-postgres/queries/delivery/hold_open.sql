-- Waits for a purge that is under way, and keeps the next one away until the transaction ends: what
-- a new part begins with is there when it is opened, or gone. Openings of one part go one at a time:
-- two that write its first rows together lock each other out.
-- Only here: a single writer does one thing at a time.
SELECT pg_advisory_xact_lock_shared('hapax.outbox_event'::regclass::oid::int4, 0),
       pg_advisory_xact_lock('hapax.lease'::regclass::oid::int4, hashtext($1::text))
