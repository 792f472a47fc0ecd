-- Removes a polling endpoint, and with it its previous tokens.
DELETE FROM hapax.poll_endpoint
WHERE name = $1::text
