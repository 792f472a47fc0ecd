-- Deallocates the statements that the driver prepared to learn the types of the database. A pooler
-- that tracks prepared statements gives them other names, and deallocates them itself.
-- Only here: the SQLite store does not share its connections.
DO $$
DECLARE
    kept text;
BEGIN
    FOR kept IN SELECT name FROM pg_prepared_statements WHERE NOT from_sql AND name ~ '^s[0-9]+$' LOOP
        EXECUTE format('DEALLOCATE %I', kept);
    END LOOP;
END
$$
