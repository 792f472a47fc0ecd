-- Says which cluster counts the xids: they begin anew when a database is restored on another one.
-- Only here: the other store has no xids.
SELECT system_identifier::text
FROM pg_control_system()
