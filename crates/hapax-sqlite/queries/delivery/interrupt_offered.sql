-- Parks an event whose first attempt was cut off, due at once with that attempt counted.
INSERT INTO hapax_delivery
    (destination, position, state, attempt, next_at, last_error, changed_at)
VALUES (?1, ?2, 'retrying', 1, ?3, ?4, ?3)
ON CONFLICT (destination, position) DO NOTHING
