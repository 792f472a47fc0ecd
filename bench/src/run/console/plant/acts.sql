-- Inserts lines of the audit log.
INSERT INTO hapax.audit_log (at, actor, tenant, action, object, detail, outcome)
SELECT plant.at(n), (ARRAY['ops', 'ann', 'bob'])[1 + n / 100 % 3],
       CASE WHEN n / 100 % 4 = 0 THEN plant.tenant(n / 100) END,
       (ARRAY['pause', 'resume', 'replay', 'discard', 'purge_key'])[1 + n / 100 % 5],
       (ARRAY['destination mail', 'destination hooks', 'destination search'])[1 + n / 100 % 3],
       '{"reason":"the far side was down"}',
       CASE WHEN n / 100 % 10 = 0 THEN 'refused' ELSE 'done' END
FROM generate_series(($1::bigint + 99) / 100 * 100, $2::bigint - 1, 100) AS series (n)
ORDER BY n
