-- Whether it is recorded where a destination starts.
SELECT EXISTS (SELECT 1 FROM hapax_start WHERE destination = ?1)
