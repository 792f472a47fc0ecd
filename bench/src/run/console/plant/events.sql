-- Inserts events. The ids of their transactions are invented, one for each request.
INSERT INTO hapax.outbox_event
    (xid, id, segment, shard, event_id, type, tenant, aggregate_type, aggregate_id, payload, headers,
     created_at)
SELECT (1000000000 + plant.request(n))::text::xid8, plant.position(n), (plant.position(n) >> 36 & 7)::int2,
       plant.shard(n), plant.event_id(n),
       CASE WHEN n % 100000 = 77 THEN 'refund.disputed'
            ELSE (ARRAY['order.created', 'order.paid', 'stock.reserved', 'invoice.written',
                        'mail.wanted', 'parcel.packed', 'parcel.sent', 'points.earned'])[1 + n / 8 % 8]
       END,
       plant.tenant(plant.request(n)), 'order', 'o-' || plant.request(n),
       '{"n":' || n || ',"customer_id":"cus_' || plant.request(n)
           || '","amount":1299,"currency":"EUR","note":"two mugs, blue"}',
       plant.headers(plant.request(n)), date_trunc('milliseconds', plant.at(n))
FROM generate_series($1::bigint, $2::bigint - 1) AS series (n)
