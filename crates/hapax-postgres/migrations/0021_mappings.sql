-- Mappings: a template that makes the bodies of an endpoint's requests.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- The template, as JSON; NULL for the usual body of webhooks.
ALTER TABLE hapax.endpoint ADD COLUMN mapping text;
