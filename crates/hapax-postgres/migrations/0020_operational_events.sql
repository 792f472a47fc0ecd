-- Operational events: which destinations lag, and the payloads that endpoints receive.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Destinations that lag. A row is inserted with the event that reports the lag, and deleted with the
-- event that reports its end.
CREATE TABLE hapax.lagging_destination (
    destination   text COLLATE "C" NOT NULL PRIMARY KEY,
    lagging_since timestamptz NOT NULL
);

-- What the requests of an endpoint contain of an event: its payload, or its id and a link.
ALTER TABLE hapax.endpoint
    ADD COLUMN payload_mode text NOT NULL DEFAULT 'full' CHECK (payload_mode IN ('full', 'thin'));

-- A receiver of links shows the token of a polling endpoint of its tenant, and not its name.
CREATE INDEX poll_endpoint_token ON hapax.poll_endpoint (token);
CREATE INDEX poll_endpoint_old_token ON hapax.poll_endpoint (old_token) WHERE old_token IS NOT NULL;
