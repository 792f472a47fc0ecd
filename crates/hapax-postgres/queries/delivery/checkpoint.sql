-- Appends a partition's checkpoint to the half of the log that its number selects, and returns the
-- number. The owner of the partition draws it, so a later checkpoint has a higher number.
INSERT INTO hapax.checkpoint_log
    (half, number, partition, epoch, frontier, snapshot, settled, offered, written_at, settlement)
SELECT number >> 11 & 1, number, $1::text, $2::int8, $3::int8, $4::text, $5::text, $6::text,
       $7::timestamptz, $8::int8
FROM (SELECT nextval('hapax.checkpoint_number') AS number OFFSET 0) AS drawn
RETURNING number
