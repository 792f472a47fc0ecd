-- Sleeping relays: a commit of events notifies a relay that polls rarely.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Notifies relays at the commit, if one of them sleeps. A relay that sleeps holds this advisory
-- lock exclusively, in a session of its own, so a relay that dies does not sleep any more.
-- Otherwise the transaction holds the lock shared until its end, and no relay falls asleep before:
-- each transaction either notifies, or has ended when the relay polls for the last time. While
-- relays are awake, no transaction notifies, because commits that notify wait for each other.
CREATE FUNCTION hapax.wake_relays() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared('hapax.outbox_event'::regclass::oid::int4, 1) THEN
        PERFORM pg_notify('hapax_outbox', '');
    END IF;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION hapax.wake_relays() FROM PUBLIC;
CREATE TRIGGER outbox_event_wakes_relays
    AFTER INSERT ON hapax.outbox_event
    FOR EACH STATEMENT EXECUTE FUNCTION hapax.wake_relays();
