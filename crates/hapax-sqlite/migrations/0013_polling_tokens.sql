-- Polling tokens: each previous token of a polling endpoint ends after its own overlap.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Previous tokens of polling endpoints, as SHA-256, each valid until a time. The previous token that
-- ends last is not here: it is `old_token` in the row of the endpoint.
CREATE TABLE hapax_poll_previous_token (
    endpoint    TEXT NOT NULL REFERENCES hapax_poll_endpoint (name) ON DELETE CASCADE,
    token       BLOB NOT NULL CHECK (length(token) = 32),
    valid_until INTEGER NOT NULL,
    PRIMARY KEY (endpoint, token)
) WITHOUT ROWID;
CREATE INDEX hapax_poll_previous_token_token ON hapax_poll_previous_token (token);
