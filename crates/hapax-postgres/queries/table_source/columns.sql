-- Lists the columns of a table, with their types, the labels of enums and the privileges on each.
-- Only here: the SQLite store has no table sources.
SELECT attname::text AS name, type.typname::text AS of_type, attnotnull AS is_required,
       ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = atttypid) AS labels,
       has_column_privilege(attrelid, attnum, 'SELECT') AS may_select,
       has_column_privilege(attrelid, attnum, 'UPDATE') AS may_update
FROM pg_attribute
JOIN pg_type AS type ON type.oid = CASE
    WHEN (SELECT typtype FROM pg_type WHERE oid = atttypid) = 'd'
    THEN (SELECT typbasetype FROM pg_type WHERE oid = atttypid)
    ELSE atttypid END
WHERE attrelid = $1::int4::oid AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
