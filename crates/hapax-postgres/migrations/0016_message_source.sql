-- A message is identified by its source, its id and its consumer. Ids are unique at their sender
-- only: before, a message that one source sent made another source's message of the same id a
-- duplicate, whose effect was lost, or a mismatch. Rows that are there keep the source that they
-- were stored with.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- In this order no lock is raised later, and no deadlock is possible with those who hold a weaker one.
LOCK TABLE hapax.inbox_message IN ACCESS EXCLUSIVE MODE;
DO $$
BEGIN
    -- On a large table the owner makes this index before, without keeping anybody waiting:
    -- see docs/guides/upgrade.md. One that is invalid or not the same is made anew.
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_index
        WHERE indexrelid = to_regclass('hapax.inbox_message_identity')
          AND indisvalid AND indisready
          AND pg_get_indexdef(indexrelid) = 'CREATE UNIQUE INDEX inbox_message_identity ON '
              'hapax.inbox_message USING btree (message_id, consumer, source)'
    ) THEN
        IF to_regclass('hapax.inbox_message_identity') IS NOT NULL THEN
            DROP INDEX hapax.inbox_message_identity;
        END IF;
        CREATE UNIQUE INDEX inbox_message_identity
            ON hapax.inbox_message (message_id, consumer, source);
    END IF;
END
$$;
ALTER TABLE hapax.inbox_message
    DROP CONSTRAINT inbox_message_pkey,
    ADD CONSTRAINT inbox_message_pkey PRIMARY KEY USING INDEX inbox_message_identity;

CREATE OR REPLACE FUNCTION hapax.accept(
    consumer text, message_id text, payload_hash bytea, source text
) RETURNS text
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    known bytea;
    at timestamptz := clock_timestamp();
BEGIN
    IF NOT (hapax.is_name(consumer) AND hapax.is_name(message_id) AND hapax.is_name(source)) THEN
        RAISE 'the consumer, the message id or the source is not 1 to 255 bytes long' USING
            ERRCODE = 'HX001';
    ELSIF octet_length(payload_hash) IS DISTINCT FROM 32 THEN
        RAISE 'the payload hash is not 32 bytes long' USING
            ERRCODE = 'HX001', HINT = 'It is the SHA-256 of what the message said.';
    END IF;
    LOOP
        INSERT INTO hapax.inbox_message
            (consumer, message_id, source, payload_hash, received_at, processed_at)
        VALUES
            (accept.consumer, accept.message_id, accept.source, accept.payload_hash, at, at)
        ON CONFLICT (message_id, consumer, source) DO NOTHING;
        IF FOUND THEN
            RETURN 'first';
        END IF;
        SELECT taken.payload_hash INTO known
        FROM hapax.inbox_message AS taken
        WHERE taken.message_id = accept.message_id AND taken.consumer = accept.consumer
          AND taken.source = accept.source;
        -- Not found: it was purged between the two, and is new.
        IF FOUND THEN
            RETURN CASE WHEN known = payload_hash THEN 'duplicate' ELSE 'mismatch' END;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION hapax.accept IS
    'Takes a message of a source for a consumer, once, in this transaction.';
