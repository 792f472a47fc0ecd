-- What an operator asks for is found along an index, however many rows there are.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- Keys, the newest claim first: to list them, and to find those of about an event's time. Claims come
-- in the order of time, so it grows at its end alone: 70 bytes of log a key, and no time that shows.
CREATE INDEX idempotency_key_created ON hapax.idempotency_key (created_at);

-- What arrived lately: a row of it stands for all that was settled together.
CREATE INDEX arrival_started ON hapax.arrival (started_at);

-- Sagas that a request of about that time began.
CREATE INDEX saga_created ON hapax.saga (created_at);
