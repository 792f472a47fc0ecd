-- Draws the next version of the endpoints. The lock of the row orders the transactions that change
-- endpoints.
UPDATE hapax.endpoint_version
SET version = version + 1
RETURNING version
