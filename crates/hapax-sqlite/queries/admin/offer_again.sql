-- Makes an event due again that a partition has settled. A parked delivery is already due. A dead
-- letter is replayed in its place, and all others are scheduled, without an order.
INSERT INTO hapax_delivery AS old
    (destination, position, state, attempt, next_at, changed_at, manual)
VALUES (?1, ?2, 'scheduled', 0, ?3, ?3, 1)
ON CONFLICT (destination, position) DO UPDATE SET
    state = CASE WHEN old.state = 'dead' THEN 'retrying' ELSE 'scheduled' END,
    order_key = CASE WHEN old.state = 'dead' THEN old.order_key END,
    attempt = 0,
    next_at = excluded.next_at,
    begun_at = NULL,
    reason = NULL,
    changed_at = excluded.changed_at,
    manual = 1
WHERE old.state IN ('dead', 'delivered', 'discarded')
