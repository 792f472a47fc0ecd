-- What operators do: destinations that are declared at run time, jobs, and the audit log.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- Destinations as an operator declared them. `spec` is JSON without secrets, `sealed` holds those,
-- encrypted by whoever declares; a row without `spec` says something about a destination that a
-- configuration file declares: that it is paused, or removed. Every change draws a new version,
-- under one lock, so that versions are committed in their order and whoever asks for what came
-- after the highest that it has seen misses none.
CREATE SEQUENCE hapax.declaration_version AS bigint CACHE 1;
CREATE TABLE hapax.declaration (
    name       text NOT NULL PRIMARY KEY,
    spec       text,
    sealed     bytea,
    version    bigint NOT NULL,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    paused_at  timestamptz,
    paused_by  text,
    removed_at timestamptz,
    purged_at  timestamptz
);
CREATE UNIQUE INDEX declaration_changes ON hapax.declaration (version);

-- A destination that was removed is opened no more: a relay that has not heard of it would begin
-- at the first event of the outbox again.
CREATE FUNCTION hapax.refuse_removed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (
        SELECT 1
        FROM hapax.declaration
        WHERE name = split_part(NEW.name, '/', 1) AND removed_at IS NOT NULL
    ) THEN
        RAISE 'destination % was removed', split_part(NEW.name, '/', 1) USING
            ERRCODE = 'HX005',
            HINT = 'Take it out of the configuration, or create it anew.';
    END IF;
    RETURN NEW;
END
$$;
REVOKE ALL ON FUNCTION hapax.refuse_removed() FROM PUBLIC;
CREATE TRIGGER destination_refuses_removed
    BEFORE INSERT ON hapax.destination
    FOR EACH ROW EXECUTE FUNCTION hapax.refuse_removed();

-- Long work, a batch a transaction: what a batch did and how far it came are one commit. Whoever
-- works on a job holds its row, which the database lets go when the worker dies.
CREATE TABLE hapax.job (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind        text NOT NULL,
    destination text NOT NULL,
    tenant      text,
    arguments   text NOT NULL,
    state       text NOT NULL CHECK (state IN
                    ('waiting', 'running', 'done', 'cancelled', 'failed')),
    part        text NOT NULL DEFAULT '',
    position    bigint NOT NULL DEFAULT 0,
    total       bigint,
    done        bigint NOT NULL DEFAULT 0,
    per_second  integer,
    next_at     timestamptz NOT NULL,
    failures    integer NOT NULL DEFAULT 0,
    error       text,
    actor       text NOT NULL,
    request_key text,
    created_at  timestamptz NOT NULL,
    started_at  timestamptz,
    ended_at    timestamptz
);
CREATE UNIQUE INDEX job_request ON hapax.job (actor, request_key)
    WHERE request_key IS NOT NULL;
CREATE INDEX job_open ON hapax.job (next_at, id)
    WHERE state IN ('waiting', 'running');

-- Who did what, when, and what came of it; written in the transaction of the act.
CREATE TABLE hapax.audit_log (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor   text NOT NULL,
    tenant  text,
    action  text NOT NULL,
    object  text NOT NULL,
    detail  text NOT NULL,
    outcome text NOT NULL
);
CREATE FUNCTION hapax.refuse_rewriting() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE 'the audit log is append-only' USING ERRCODE = 'HX006';
END
$$;
CREATE TRIGGER audit_log_is_appended_to
    BEFORE UPDATE OR DELETE OR TRUNCATE ON hapax.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse_rewriting();

-- Roughly the first id of an event that was created at or after a moment: ids and moments rise
-- together but for clocks that differ and transactions that linger, so whoever looks for a moment
-- begins some minutes before it. A search by halves costs some forty steps along the primary key
-- and no index that every producer would have to keep.
CREATE FUNCTION hapax.id_at(moment timestamptz) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    low bigint := (SELECT min(event.id) FROM hapax.outbox_event AS event);
    high bigint := (SELECT max(event.id) FROM hapax.outbox_event AS event);
    middle bigint;
    next record;
BEGIN
    IF low IS NULL THEN
        RETURN 0;
    END IF;
    high := high + 1;
    WHILE low < high LOOP
        middle := low + (high - low) / 2;
        SELECT event.id, event.created_at INTO next
        FROM hapax.outbox_event AS event
        WHERE event.id >= middle
        ORDER BY event.id
        LIMIT 1;
        IF NOT FOUND OR next.id >= high OR next.created_at >= moment THEN
            high := middle;
        ELSE
            low := next.id + 1;
        END IF;
    END LOOP;
    RETURN low;
END
$$;

-- Parts of which nobody has shown himself, and since when: no living node holds them, and neither
-- their epoch nor their checkpoint is another than it was then.
CREATE TABLE hapax.absence (
    part       text NOT NULL PRIMARY KEY,
    epoch      bigint NOT NULL,
    written_at timestamptz NOT NULL,
    since      timestamptz NOT NULL,
    noted_at   timestamptz NOT NULL
);

-- Notes of which parts nobody shows himself, while a node that lives holds others: where all are
-- left alone, a relay is down and none is gone. A node that was heard of within a day, and has not
-- said that it ends, counts as living. What was not looked at for a day is counted anew.
CREATE FUNCTION hapax.note_absent(at timestamptz) RETURNS void
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH living AS MATERIALIZED (
        SELECT node
        FROM (
            SELECT DISTINCT ON (node) node, lives
            FROM hapax.sign
            WHERE seen_at > at - interval '1 day'
            ORDER BY node, number DESC
        ) AS last
        WHERE lives
    ), held AS MATERIALIZED (
        SELECT part FROM hapax.lease WHERE node IN (SELECT node FROM living)
    ), absent AS MATERIALIZED (
        SELECT part, epoch, written_at
        FROM hapax.position
        WHERE part NOT IN (SELECT part FROM held) AND EXISTS (SELECT FROM held)
    ), back AS (
        DELETE FROM hapax.absence
        WHERE part NOT IN (SELECT part FROM absent)
    )
    INSERT INTO hapax.absence AS old (part, epoch, written_at, since, noted_at)
    SELECT part, epoch, written_at, at, at
    FROM absent
    ON CONFLICT (part) DO UPDATE SET
        epoch = excluded.epoch,
        written_at = excluded.written_at,
        since = CASE
            WHEN (old.epoch, old.written_at) = (excluded.epoch, excluded.written_at)
                AND old.since <= at AND old.noted_at > at - interval '1 day' THEN old.since
            ELSE at END,
        noted_at = at
    WHERE (old.epoch, old.written_at) <> (excluded.epoch, excluded.written_at)
       OR old.noted_at NOT BETWEEN at - interval '1 hour' AND at
$$;

-- Parts that nobody carries any more: for longer than `age` (in milliseconds) nobody has shown
-- himself of them while others were carried, no operator has declared their destination, and it was
-- not disabled for failing. The outbox does not wait for them.
CREATE FUNCTION hapax.gone_parts(age bigint, at timestamptz) RETURNS SETOF text
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT absence.part
    FROM hapax.absence AS absence
    JOIN hapax.position AS place
        ON (place.part, place.epoch, place.written_at)
         = (absence.part, absence.epoch, absence.written_at)
    WHERE absence.since <= hapax.ago(age, at)
      AND NOT EXISTS (
          SELECT FROM hapax.declaration
          WHERE name = split_part(absence.part, '/', 1) AND removed_at IS NULL
      )
      AND NOT EXISTS (
          SELECT FROM hapax.destination
          WHERE split_part(name, '/', 1) = split_part(absence.part, '/', 1)
            AND disabled_at IS NOT NULL
      )
$$;
