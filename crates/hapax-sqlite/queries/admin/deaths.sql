-- Returns the number of the delivery that died last.
-- Only here: the PostgreSQL store compares the transactions that wrote the rows.
SELECT last
FROM hapax_death
