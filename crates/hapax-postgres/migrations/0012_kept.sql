-- What nobody carries but a relay knows: a destination that its own setting pauses keeps its events.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- As before, but a part whose destination a living node knows is not absent.
CREATE OR REPLACE FUNCTION hapax.note_absent(at timestamptz) RETURNS void
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH living AS MATERIALIZED (
        SELECT node, knows
        FROM (
            SELECT DISTINCT ON (node) node, lives, knows
            FROM hapax.sign
            WHERE seen_at > at - interval '1 day'
            ORDER BY node, number DESC
        ) AS last
        WHERE lives
    ), held AS MATERIALIZED (
        SELECT part FROM hapax.lease WHERE node IN (SELECT node FROM living)
    ), known AS MATERIALIZED (
        SELECT DISTINCT unnest(knows) AS name FROM living
    ), absent AS MATERIALIZED (
        SELECT part, epoch, written_at
        FROM hapax.position
        WHERE part NOT IN (SELECT part FROM held) AND EXISTS (SELECT FROM held)
          AND split_part(part, '/', 1) NOT IN (SELECT name FROM known)
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

-- As before, but a part whose destination any node has known within a day is not gone: between the
-- end of one relay and the start of the next nobody may know it.
CREATE OR REPLACE FUNCTION hapax.gone_parts(age bigint, at timestamptz) RETURNS SETOF text
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
      AND NOT EXISTS (
          SELECT FROM hapax.sign
          WHERE seen_at > coalesce(at, clock_timestamp()) - interval '1 day'
            AND split_part(absence.part, '/', 1) = ANY (knows)
      )
$$;
