-- Whether it is recorded where a destination starts.
SELECT EXISTS (SELECT 1 FROM hapax.start WHERE destination = $1::text)
