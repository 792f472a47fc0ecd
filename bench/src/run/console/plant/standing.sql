-- Inserts the segments, the last of which is the current one.
INSERT INTO hapax.rotation (rotation, opened_at, closed_at, last)
SELECT rotation, min(at), CASE WHEN rotation < max(max(rotation)) OVER () THEN max(at) END,
       CASE WHEN rotation < max(max(rotation)) OVER () THEN max(position) END
FROM (
    SELECT plant.position(n) >> 36 AS rotation, plant.position(n) AS position, plant.at(n) AS at
    FROM generate_series(0, plant.events() - 1) AS series (n)
) AS every
GROUP BY rotation;
SELECT setval('hapax.outbox_event_id', plant.position(plant.events() - 1));
-- A live relay owns every partition; one of them lags.
INSERT INTO hapax.destination (name, first_opened_at, opened_at)
SELECT name, plant.at(0), plant.at(0)
FROM unnest(ARRAY['mail', 'search', 'hooks/0', 'hooks/1', 'hooks/2', 'hooks/3']) AS partitions (name);
INSERT INTO hapax.lease (partition, epoch, node, taken_at)
SELECT name, 1, 'relay-1', plant.at(0) FROM hapax.destination;
INSERT INTO hapax.heartbeat (half, number, node, is_alive, seen_at)
VALUES (0, nextval('hapax.heartbeat_number'), 'relay-1', true, clock_timestamp() + interval '1 day');
INSERT INTO hapax.checkpoint_log
    (half, number, partition, epoch, frontier, snapshot, settled, offered, written_at)
SELECT 0, nextval('hapax.checkpoint_number'), name, 1,
       plant.position(plant.events() - 1 - CASE WHEN name = 'search' THEN plant.lag() ELSE 0 END),
       NULL, '', '', clock_timestamp()
FROM hapax.destination;
INSERT INTO hapax.declaration (name, spec, version, created_at, changed_at, changed_by)
SELECT name, spec, nextval('hapax.declaration_version'), plant.at(0), plant.at(0), 'ops'
FROM (
    VALUES ('mail', '{"sink":{"smtp":{"url":"smtp://mail.example"}}}'),
           ('search', '{"sink":{"webhook":{"url":"https://search.example"}}}'),
           ('hooks', '{"partitions":4,"sink":{"webhook":{"url":"https://hooks.example","secret":"***"}}}')
) AS declared (name, spec);
