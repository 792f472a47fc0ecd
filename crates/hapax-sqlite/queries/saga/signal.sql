-- Writes down what a saga was told; what it was told first under a name stands.
INSERT INTO hapax_saga_signal (saga, name, payload, received_at)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (saga, name) DO NOTHING
