-- The secret under which services derive keys from requests.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- A copy of the file has the same secret, and so derives the same keys.
CREATE TABLE hapax_secret (
    name   TEXT NOT NULL PRIMARY KEY,
    secret BLOB NOT NULL CHECK (length(secret) = 32)
);
INSERT INTO hapax_secret (name, secret) VALUES ('derivation', randomblob(32));
