-- Raises the epoch, which fences the owner before: a new destination starts at the first event.
INSERT INTO hapax_checkpoint (destination, epoch, frontier, settled, offered, written_at)
VALUES (?1, 1, 0, '', '', ?2)
ON CONFLICT (destination) DO UPDATE SET epoch = epoch + 1
RETURNING epoch, frontier, settled, offered, written_at
