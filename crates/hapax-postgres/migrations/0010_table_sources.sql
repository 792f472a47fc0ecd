-- Table sources: outbox tables that a service already has.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Rows that could not become an event, by source. They remain in their table unchanged; the source
-- tries a row again when its line here is deleted. The payload is recorded only for feeds, whose
-- changes are not sent again.
CREATE TABLE hapax.set_aside (
    source       text NOT NULL,
    row_key      text NOT NULL COLLATE "C",
    problem      text NOT NULL,
    payload      text,
    set_aside_at timestamptz NOT NULL,
    PRIMARY KEY (source, row_key)
);

-- Event id of a row, the same on every call and unique to the row. A UUID v8, because it contains
-- neither a time nor random bits.
CREATE FUNCTION hapax.row_event_id(of_table text, row_key text) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (
        SELECT encode(
            set_byte(set_byte(hash, 6, get_byte(hash, 6) & 15 | 128), 8,
                     get_byte(hash, 8) & 63 | 128),
            'hex')::uuid
        FROM substr(sha256(convert_to(of_table || E'\n' || row_key, 'UTF8')), 1, 16) AS hash
    );

-- Bytes as text; null if they are not valid UTF-8.
CREATE FUNCTION hapax.text_of(bytes bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN NULL;
END
$$;

-- Headers of a row as those of an event: an object of strings. Other values are converted to
-- strings; null if the text is not a JSON object.
CREATE FUNCTION hapax.row_headers(own text) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    every jsonb;
BEGIN
    -- Not in the DECLARE section, because an exception there is not caught by this block.
    every := own::jsonb;
    IF every = '{}' THEN
        RETURN every;
    ELSIF jsonb_typeof(every) <> 'object' THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT coalesce(jsonb_object_agg(name, coalesce(value #>> '{}', '')), '{}')
        FROM jsonb_each(every) AS header (name, value)
    );
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;

-- Why a row cannot become an event, or null if it can. The bounds are those of `hapax.emit` and
-- `hapax.emit_bytes`. Headers that only the keyring writes are rejected: otherwise every relay
-- would try to decrypt a payload that is not encrypted, and stop at it.
CREATE FUNCTION hapax.row_problem(
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
