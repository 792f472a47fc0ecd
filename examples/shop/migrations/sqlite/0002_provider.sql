-- Provider keys: the key under which the shop calls an external payment provider. A resumed request
-- uses it to find the rows of its earlier run. A refund is pending from the time at which its
-- amount is reserved until the provider has confirmed it. The provider's id of a refund is unique
-- within its charge, however many webhooks report it.

ALTER TABLE shop_charge ADD COLUMN provider_key TEXT;
CREATE UNIQUE INDEX shop_charge_by_provider_key ON shop_charge (provider_key);

ALTER TABLE shop_refund ADD COLUMN provider_key TEXT;
ALTER TABLE shop_refund ADD COLUMN provider_ref TEXT;
ALTER TABLE shop_refund ADD COLUMN state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'done'));
CREATE UNIQUE INDEX shop_refund_by_provider_key ON shop_refund (provider_key);
CREATE UNIQUE INDEX shop_refund_by_provider_ref ON shop_refund (charge_id, provider_ref);
