-- Closes what the driver prepared to know the database's own types. A pooler that follows prepared
-- statements gives them other names, and does its own closing.
-- Only here: the other store has its connections to itself.
DO $$
DECLARE
    kept text;
BEGIN
    FOR kept IN SELECT name FROM pg_prepared_statements WHERE NOT from_sql AND name ~ '^s[0-9]+$' LOOP
        EXECUTE format('DEALLOCATE %I', kept);
    END LOOP;
END
$$
