-- The tables of the services that the tests start.
CREATE TABLE shop_order (
    id text PRIMARY KEY,
    tenant text NOT NULL,
    item text NOT NULL,
    amount bigint NOT NULL CONSTRAINT amount_is_positive CHECK (amount > 0)
);
CREATE TABLE ledger_entry (message_id text NOT NULL, amount bigint NOT NULL);
-- A commit of such an order waits for the lock that a test holds.
CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF new.item = 'block commit' THEN
        PERFORM pg_advisory_xact_lock(42);
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT ON shop_order
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_at_commit();
