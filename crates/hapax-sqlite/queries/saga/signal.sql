-- Stores a signal of a saga. The first signal of each name is kept.
INSERT INTO hapax_saga_signal (saga, name, payload, received_at)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (saga, name) DO NOTHING
