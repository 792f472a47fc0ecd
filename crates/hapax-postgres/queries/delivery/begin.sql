-- Counts attempts before they are made, so that an event which kills its relay runs out of them. One
-- that was blocked has its turn now: whoever begins it ends what held it up in the same settlement.
-- Why it is written like this is said in release.
UPDATE hapax.delivery AS delivery SET
    attempt = begun.number,
    begun_at = $4::timestamptz,
    state = CASE state WHEN 'blocked' THEN 'retrying' ELSE state END
FROM (
    SELECT $1::text AS destination, position, number
    FROM unnest($2::int8[], $3::int4[]) AS begun (position, number)
    OFFSET 0
) AS begun
WHERE delivery.destination = begun.destination
  AND delivery.position = begun.position
  AND delivery.state NOT IN ('dead', 'delivered', 'discarded')
