-- Returns whether there is a polling endpoint.
-- Only here: the PostgreSQL store asks in the function that empties a segment.
SELECT EXISTS (SELECT 1 FROM hapax_poll_endpoint)
