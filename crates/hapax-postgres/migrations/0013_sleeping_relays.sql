-- Sleeping relays: a commit of events notifies a relay that polls rarely.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Notifies the relays that listen, when the transaction commits.
CREATE FUNCTION hapax.wake_relays() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_notify('hapax_outbox', '');
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION hapax.wake_relays() FROM PUBLIC;

-- A relay that sleeps holds this advisory lock exclusively, by a session, so a relay that dies does
-- not sleep any more. A transaction that inserts events tries to take the lock shared, and keeps it
-- until its end. If it gets the lock, no relay falls asleep before it has ended, and the relay polls
-- once more after that. If it does not, it notifies. While relays are awake, no transaction
-- notifies, because commits that notify wait for each other.
-- The condition needs no call of a function in PL/pgSQL, and its names are resolved here. A
-- statement that has inserted nothing fires the trigger too: if its transaction has no number, the
-- transaction has inserted no event at all.
CREATE TRIGGER outbox_event_wakes_relays
    AFTER INSERT ON hapax.outbox_event
    FOR EACH STATEMENT
    WHEN (pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL
          AND NOT pg_catalog.pg_try_advisory_xact_lock_shared(
              'hapax.outbox_event'::regclass::oid::int4, 1))
    EXECUTE FUNCTION hapax.wake_relays();
