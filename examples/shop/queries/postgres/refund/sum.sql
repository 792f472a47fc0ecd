-- Sums the refunds of a charge: all of them, and those that the provider has made.
SELECT
    CAST(coalesce(sum(amount), 0) AS bigint) AS reserved,
    CAST(coalesce(sum(amount) FILTER (WHERE state = 'done'), 0) AS bigint) AS made
FROM shop_refund
WHERE charge_id = $1
