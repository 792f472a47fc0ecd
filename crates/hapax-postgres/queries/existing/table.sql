-- Says which table goes by a name, and what may be done with it.
-- Only here: the other store takes in no tables.
SELECT class.oid::int4 AS number, namespace.nspname::text AS schema, class.relname::text AS name,
       class.relkind IN ('r', 'p') AS is_table,
       has_schema_privilege(namespace.oid, 'USAGE') AS may_use,
       has_table_privilege(class.oid, 'DELETE') AS may_delete
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE class.relname = $2::text
  AND CASE WHEN $1::text IS NULL THEN pg_table_is_visible(class.oid)
           ELSE namespace.nspname = $1::text END
