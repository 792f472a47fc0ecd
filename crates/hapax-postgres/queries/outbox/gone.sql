-- Lists the parts that nobody has carried for so many milliseconds ($1): the outbox waits for them
-- no longer. The database's clock judges, unless a moment is given ($2).
-- Only here: the other store has one process, which says what it carries.
SELECT part
FROM hapax.gone_parts($1::int8, $2::timestamptz) AS gone (part)
ORDER BY part COLLATE "C"
