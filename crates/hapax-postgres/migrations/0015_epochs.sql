-- An epoch that outlives its part, and rows of an existing outbox that say what only Hapax may say.
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

-- Why a row cannot become an event; null when it can. The bounds are those of `hapax.emit`
-- and `hapax.emit_bytes`. What only the keyring says would have every relay decrypt, and stop at, a
-- payload that nobody encrypted.
CREATE OR REPLACE FUNCTION hapax.row_problem(
    type text, size bigint, words text, is_json boolean, headers jsonb, aggregate_type text,
    aggregate_id text, tenant text, available_at timestamptz
) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT hapax.is_name(type) OR type COLLATE "C" ~ '[^A-Za-z0-9._/:-]' THEN
        RETURN 'the event type is not 1 to 255 letters, digits and . _ - / :';
    ELSIF size IS NULL THEN
        RETURN 'the payload is missing';
    ELSIF size > 1048576 THEN
        RETURN format('the payload is %s bytes long, at most 1048576 are carried', size);
    ELSIF words IS NULL THEN
        RETURN 'the payload is not UTF-8';
    ELSIF NOT is_json THEN
        RETURN 'the payload is not JSON';
    ELSIF (aggregate_type IS NULL) <> (aggregate_id IS NULL) THEN
        RETURN 'an aggregate has a type and an id';
    ELSIF aggregate_id IS NOT NULL AND (
        NOT hapax.is_name(aggregate_type) OR hapax.has_control(aggregate_type)
        OR NOT hapax.is_name(aggregate_id) OR hapax.has_control(aggregate_id)
    ) THEN
        RETURN 'the aggregate is not 1 to 255 bytes without control characters';
    ELSIF tenant IS NOT NULL AND NOT hapax.is_name(tenant) THEN
        RETURN 'the tenant is not 1 to 255 bytes long';
    ELSIF available_at >= '10000-01-01 00:00:00+00' OR NOT isfinite(available_at) THEN
        RETURN 'the event is available at no time';
    ELSIF headers IS NULL THEN
        RETURN 'the headers are not an object';
    ELSIF headers ? 'hapax-encrypted-under' THEN
        RETURN 'header hapax-encrypted-under is the keyring''s own';
    ELSIF headers ? 'content-type' AND (
        NOT hapax.is_name(headers ->> 'content-type')
        OR hapax.has_control(headers ->> 'content-type')
    ) THEN
        RETURN 'the content type is not 1 to 255 bytes without control characters';
    ELSIF headers <> '{}' AND (
        (SELECT count(*) FROM jsonb_object_keys(headers - 'content-type')) > 64
        OR EXISTS (
            SELECT FROM jsonb_each_text(headers) AS header (name, value)
            WHERE name = '' OR octet_length(name) + octet_length(value) > 4096
               OR hapax.has_control(name) OR hapax.has_control(value)
        )
    ) THEN
        RETURN 'a header is longer than 4096 bytes or holds a control character, or there are more than 64';
    END IF;
    RETURN NULL;
END
$$;
