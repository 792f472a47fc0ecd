-- Stock per article: the total, and how much of it checkouts have reserved.

CREATE TABLE shop_stock (
    sku      text COLLATE "C" NOT NULL PRIMARY KEY,
    total    bigint NOT NULL CHECK (total >= 0),
    reserved bigint NOT NULL DEFAULT 0 CHECK (reserved BETWEEN 0 AND total)
);

INSERT INTO shop_stock (sku, total)
VALUES ('sku_tea', 1000000000), ('sku_mug', 1000000000), ('sku_rare', 1);
