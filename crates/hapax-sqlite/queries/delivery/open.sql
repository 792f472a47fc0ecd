-- Raises the epoch, which fences the previous owner. A new destination starts where that was recorded,
-- or at the first event; if a removed one had its name, its epochs continue. No node owns the
-- destination then: opening it this way does not send heartbeats.
INSERT INTO hapax_checkpoint
    (destination, epoch, frontier, settled, offered, written_at, node, taken_at)
VALUES (
    ?1, 1 + coalesce((SELECT epoch FROM hapax_former_epoch WHERE partition = ?1), 0),
    coalesce((
        SELECT start.frontier
        FROM hapax_start AS start
        WHERE start.destination = substr(?1, 1, instr(?1 || '/', '/') - 1)
    ), 0), '', '', ?2, NULL, ?2
)
ON CONFLICT (destination) DO UPDATE SET
    epoch = epoch + 1,
    settlement = 0,
    node = NULL,
    taken_at = excluded.taken_at
RETURNING epoch, frontier, settled, offered, written_at
