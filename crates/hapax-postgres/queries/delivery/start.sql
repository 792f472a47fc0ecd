-- Writes the first checkpoint of a partition: where its destination starts. A destination that starts
-- with the first event needs none, and a partition that has one has started.
-- Only here: the SQLite store does this in the statement that opens the partition.
INSERT INTO hapax.checkpoint_log
    (half, number, partition, epoch, frontier, snapshot, settled, offered, written_at)
SELECT number >> 11 & 1, number, partition, epoch, frontier, snapshot, '', '', taken_at
FROM (
    SELECT nextval('hapax.checkpoint_number') AS number, lease.partition, lease.epoch,
           recorded.frontier, recorded.snapshot, lease.taken_at
    FROM hapax.lease AS lease
    JOIN hapax.start AS recorded ON recorded.destination = split_part(lease.partition, '/', 1)
    WHERE lease.partition = $1::text AND recorded.snapshot IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM hapax.checkpoint_log AS log WHERE log.partition = lease.partition
    )
    OFFSET 0
) AS started
