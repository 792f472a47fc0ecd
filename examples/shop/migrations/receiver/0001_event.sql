-- Events that the receiver of the demo has received, with their deliveries and effects.
CREATE TABLE receiver_event (
    event_id   TEXT    NOT NULL PRIMARY KEY,
    type       TEXT    NOT NULL,
    deliveries INTEGER NOT NULL,
    effects    INTEGER NOT NULL,
    first_at   INTEGER NOT NULL,
    last_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
