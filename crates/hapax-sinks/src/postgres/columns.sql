-- Reads the columns of the table with their types, and whether the inbox and the table exist.
-- The modifier -1 omits the length of a type, because a cast to a type with a length truncates
-- longer values.
SELECT to_regclass('hapax.inbox_message') IS NOT NULL AS inbox,
       relation IS NOT NULL AS known,
       attribute.attname::text AS name,
       format_type(attribute.atttypid, -1) AS type
FROM (SELECT to_regclass($1::text) AS relation) AS named
LEFT JOIN pg_catalog.pg_attribute AS attribute
    ON attribute.attrelid = named.relation
    AND attribute.attnum > 0
    AND NOT attribute.attisdropped
