-- Parks an event whose first attempt was cut off, due at once with that attempt counted. It holds
-- its order key up: what comes behind it must not overtake it. The key is spelled as
-- hapax::event::Event::order_key spells it.
INSERT INTO hapax_delivery
    (destination, position, state, attempt, next_at, order_key, last_error, changed_at)
SELECT ?1, id, 'retrying', 1, ?3, aggregate_type || char(10) || aggregate_id, ?4, ?3
FROM hapax_outbox_event
WHERE id = ?2
ON CONFLICT (destination, position) DO NOTHING
