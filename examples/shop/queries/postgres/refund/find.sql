-- Finds the refund that an earlier run of a resumed request wrote, by its provider key.
SELECT refund.id, refund.charge_id, refund.amount, charge.currency, refund.created_at,
    refund.state
FROM shop_refund AS refund
JOIN shop_charge AS charge ON charge.id = refund.charge_id
WHERE refund.provider_key = $1 AND refund.tenant = $2
