-- Polling tokens: each previous token of a polling endpoint ends after its own overlap.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Previous tokens of polling endpoints, as SHA-256, each valid until a time. The previous token that
-- ends last is not here: it is `old_token` in the row of the endpoint, where processes of an earlier
-- version read it too.
CREATE TABLE hapax.poll_previous_token (
    endpoint    text NOT NULL REFERENCES hapax.poll_endpoint (name) ON DELETE CASCADE,
    token       bytea NOT NULL CHECK (octet_length(token) = 32),
    valid_until timestamptz NOT NULL,
    PRIMARY KEY (endpoint, token)
);
CREATE INDEX poll_previous_token_token ON hapax.poll_previous_token (token);
