-- Releases the lock by which producers know that a relay sleeps, and wakes the relays that rely on
-- it.
-- Only here: no other process writes to a SQLite store without notifying its relay.
SELECT pg_advisory_unlock('hapax.outbox_event'::regclass::oid::int4, 1) AS released,
       set_config('idle_session_timeout', '0', false) AS silent_max,
       pg_notify('hapax_outbox', '') AS notified
