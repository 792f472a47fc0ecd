-- Raises the epoch, which fences the owner before: a new destination starts at the first event.
INSERT INTO hapax.checkpoint AS old (destination, epoch, frontier, settled, offered, written_at)
VALUES ($1::text, 1, 0, '', '', $2::timestamptz)
ON CONFLICT (destination) DO UPDATE SET epoch = old.epoch + 1
RETURNING epoch, frontier, snapshot, settled, offered, written_at
