-- What ties the shop's rows to a foreign provider: the key under which an operation was asked for,
-- by which a resumed request finds what the one before it wrote. A refund is pending while the
-- charge's row holds its amount and nobody has heard of the provider's refund.

ALTER TABLE shop_charge ADD COLUMN provider_key TEXT;
CREATE UNIQUE INDEX shop_charge_by_provider_key ON shop_charge (provider_key);

ALTER TABLE shop_refund ADD COLUMN provider_key TEXT;
ALTER TABLE shop_refund ADD COLUMN provider_ref TEXT;
ALTER TABLE shop_refund ADD COLUMN state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'done'));
CREATE UNIQUE INDEX shop_refund_by_provider_key ON shop_refund (provider_key);
