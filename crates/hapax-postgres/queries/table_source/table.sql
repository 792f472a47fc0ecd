-- Finds the table of a name and the privileges on it, whether row-level security applies to the
-- role, and whether any policy allows the role to select and update rows, and to delete them too. A
-- policy is for one command (read, append, write, delete) or for all of them.
-- Only here: the SQLite store has no table sources.
SELECT class.oid::int4 AS number, namespace.nspname::text AS schema, class.relname::text AS name,
       class.relkind IN ('r', 'p') AS is_table,
       has_schema_privilege(namespace.oid, 'USAGE') AS may_use,
       has_table_privilege(class.oid, 'DELETE') AS may_delete,
       row_security_active(class.oid) AS hides_some,
       policy.selects AND policy.updates AS may_mark,
       policy.selects AND policy.updates AND policy.deletes AS may_take
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(polcmd NOT IN ('a', 'w', 'd')), false) AS selects,
           coalesce(bool_or(polcmd NOT IN ('r', 'a', 'd')), false) AS updates,
           coalesce(bool_or(polcmd NOT IN ('r', 'a', 'w')), false) AS deletes
    FROM pg_policy
    WHERE polrelid = class.oid
      AND polpermissive
      AND EXISTS (
          SELECT
          FROM unnest(polroles) AS role (oid)
          WHERE CASE WHEN role.oid = 0 THEN true ELSE pg_has_role(role.oid, 'USAGE') END
      )
) AS policy
WHERE class.relname = $2::text
  AND CASE WHEN $1::text IS NULL THEN pg_table_is_visible(class.oid)
           ELSE namespace.nspname = $1::text END
