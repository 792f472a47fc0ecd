-- The secret under which services derive keys from requests.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- Every process of this database reads the same secret, also after a restore of a dump. It is drawn
-- by the server's strong random source: three UUIDs of 122 random bits each.
CREATE TABLE hapax.secret (
    name       text NOT NULL PRIMARY KEY,
    secret     bytea NOT NULL CHECK (octet_length(secret) = 32),
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO hapax.secret (name, secret)
VALUES ('derivation', sha256(
    uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
));
