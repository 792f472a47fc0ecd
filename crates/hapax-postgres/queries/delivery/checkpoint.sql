-- Appends a part's checkpoint to the half of the log that its number says, and says the number. Who
-- holds the part draws it, so a later one is higher.
INSERT INTO hapax.checkpoint_log
    (half, number, part, epoch, frontier, snapshot, settled, offered, written_at, settlement)
SELECT number >> 11 & 1, number, $1::text, $2::int8, $3::int8, $4::text, $5::text, $6::text,
       $7::timestamptz, $8::int8
FROM (SELECT nextval('hapax.checkpoint_number') AS number OFFSET 0) AS drawn
RETURNING number
