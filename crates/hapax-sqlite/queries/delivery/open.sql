-- Raises the epoch, which fences the owner before: a new destination starts at the first event.
-- Nobody holds it then: whoever opens it gives no signs of life.
INSERT INTO hapax_checkpoint
    (destination, epoch, frontier, settled, offered, written_at, node, taken_at)
VALUES (?1, 1, 0, '', '', ?2, NULL, ?2)
ON CONFLICT (destination) DO UPDATE SET
    epoch = epoch + 1,
    settlement = 0,
    node = NULL,
    taken_at = excluded.taken_at
RETURNING epoch, frontier, settled, offered, written_at
