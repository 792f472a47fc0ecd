-- An epoch that outlives its part.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- The last epoch of parts that were forgotten. One that is made anew under the same name goes on
-- counting: an owner that has heard of nothing since would otherwise hold an epoch that is another's
-- by now, and write what it knows of the old part into the new one. In rows, which a dump carries
-- and a role needs no right to: whatever version or person deletes a lease, it is kept.
CREATE TABLE hapax.former_lease (
    part  text NOT NULL PRIMARY KEY,
    epoch bigint NOT NULL
);
CREATE FUNCTION hapax.keep_epoch() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO hapax.former_lease AS former (part, epoch)
    VALUES (OLD.part, OLD.epoch)
    ON CONFLICT (part) DO UPDATE SET epoch = greatest(former.epoch, excluded.epoch);
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION hapax.keep_epoch() FROM PUBLIC;
CREATE TRIGGER lease_leaves_its_epoch
    AFTER DELETE ON hapax.lease
    FOR EACH ROW EXECUTE FUNCTION hapax.keep_epoch();

CREATE FUNCTION hapax.go_on_counting() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Whoever is deleting the row is waited for here: below, what that one keeps is seen.
    PERFORM FROM hapax.lease WHERE part = NEW.part FOR NO KEY UPDATE;
    NEW.epoch := greatest(NEW.epoch, (
        SELECT former.epoch + 1 FROM hapax.former_lease AS former WHERE former.part = NEW.part
    ));
    RETURN NEW;
END
$$;
REVOKE ALL ON FUNCTION hapax.go_on_counting() FROM PUBLIC;
CREATE TRIGGER lease_goes_on_counting
    BEFORE INSERT ON hapax.lease
    FOR EACH ROW EXECUTE FUNCTION hapax.go_on_counting();
