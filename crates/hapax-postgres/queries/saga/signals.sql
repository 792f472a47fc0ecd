-- Reads the signals of some sagas in order. The signals of each saga are looked up separately,
-- regardless of the statistics of the table: see delivery/release.
SELECT asked.saga, name, payload, received_at
FROM unnest($1::text[]) AS asked (saga)
CROSS JOIN LATERAL (
    SELECT signal.place, signal.name, signal.payload, signal.received_at
    FROM hapax.saga_signal AS signal
    WHERE signal.saga = asked.saga
    OFFSET 0
) AS received
ORDER BY place
