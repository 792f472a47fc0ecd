-- Waits for a running purge, and locks out the next one until the transaction ends, so that the
-- events with which a new partition starts either exist when it is opened or are gone. Openings of
-- one partition run one at a time, because two that write its first rows together would deadlock.
-- Only here: the single writer of SQLite runs one job at a time.
SELECT pg_advisory_xact_lock_shared('hapax.outbox_event'::regclass::oid::int4, 0),
       pg_advisory_xact_lock('hapax.lease'::regclass::oid::int4, hashtext($1::text))
