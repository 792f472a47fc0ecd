-- Parks an event whose first attempt was interrupted. It is due at once, with that attempt counted,
-- and blocks its order key, so that no later event overtakes it. The key has the format of
-- hapax::event::Event::order_key.
INSERT INTO hapax_delivery
    (destination, position, state, attempt, next_at, order_key, last_error, changed_at)
SELECT ?1, id, 'retrying', 1, ?3, aggregate_type || char(10) || aggregate_id, ?4, ?3
FROM hapax_outbox_event
WHERE id = ?2
ON CONFLICT (destination, position) DO NOTHING
