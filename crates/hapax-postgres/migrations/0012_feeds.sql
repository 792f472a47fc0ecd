-- Feeds: logical replication as a source of events.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- How far each feed has read the write-ahead log of its source. The row is changed in the transaction
-- that appends the events, so events and position are committed together. `confirmed_lsn` is null
-- until the feed has a position, and again after an operator has accepted a gap. `epoch` counts the
-- feeders: the transaction of a feeder fails if another one has taken over. While `gap` is set,
-- nothing is read.
CREATE TABLE hapax.feed (
    name              text NOT NULL PRIMARY KEY,
    slot              text NOT NULL,
    system_identifier text NOT NULL,
    timeline          bigint NOT NULL,
    confirmed_lsn     pg_lsn,
    epoch             bigint NOT NULL DEFAULT 0,
    gap               text,
    gap_at            timestamptz,
    updated_at        timestamptz NOT NULL
);

-- A text as a time, in UTC unless it names another zone; null if it is not a time.
CREATE FUNCTION hapax.moment_of(words text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    SET TimeZone = 'UTC'
    SET DateStyle = 'ISO'
AS $$
BEGIN
    RETURN words::timestamptz;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;
