-- Fixture: a day of a shop with orders, refunds and mails, most of which are delivered.
DO $$
BEGIN
    FOR n IN 1..60 LOOP
        PERFORM hapax.claim('shop', 'POST /orders', 'order-8e03-' || n, sha256(n::text::bytea));
        PERFORM hapax.emit('order.created', jsonb_build_object('order', 'ord-' || n, 'amount', 500 + n,
            'card', '4111111111111111', 'customer', jsonb_build_object('name', 'Ann', 'email', 'ann@example.com'))::text,
            'order', 'ord-' || n, NULL,
            jsonb_build_object('source', 'checkout', 'idempotency_key_hash', left(md5(n::text), 8)));
        IF n % 7 = 0 THEN
            PERFORM hapax.emit('refund.created', jsonb_build_object('order', 'ord-' || n, 'amount', 100)::text,
                'order', 'ord-' || n);
        END IF;
        PERFORM hapax.complete('shop', 'POST /orders', 'order-8e03-' || n, CASE WHEN n % 11 = 0 THEN 409 ELSE 201 END,
            '[["content-type", "application/json"]]',
            convert_to('{"id": "ord-' || n || '", "email": "ann@example.com"}', 'UTF8'));
    END LOOP;
    PERFORM hapax.emit('payment.succeeded', '{"payment": "pay-1"}', 'payment', 'pay-1', NULL, '{}', 'shop');
    PERFORM hapax.emit('order.shipped', '{"order": "ord-1"}', 'order', 'ord-1', NULL, '{}', 'shop');
END
$$;
INSERT INTO hapax.destination (name, first_opened_at, opened_at)
SELECT name, now() - interval '9 days', now() - interval '1 hour'
FROM unnest(ARRAY['mail', 'hooks', 'billing', 'search']) AS name;
-- A live relay owns every partition and has read all events.
INSERT INTO hapax.lease (partition, epoch, node, taken_at)
SELECT name, 3, 'relay-1', now() - interval '1 hour' FROM hapax.destination;
INSERT INTO hapax.heartbeat (half, number, node, is_alive, seen_at)
VALUES (0, nextval('hapax.heartbeat_number'), 'relay-1', true, now() + interval '1 day');
INSERT INTO hapax.checkpoint_log
    (half, number, partition, epoch, frontier, snapshot, settled, offered, written_at)
SELECT 0, nextval('hapax.checkpoint_number'), name, 3, (SELECT max(id) FROM hapax.outbox_event), NULL, '', '', now()
FROM hapax.destination;
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, last_error, changed_at)
SELECT 'search', id, 'dead', 10, now(), '422 no such field', now() - interval '8 minutes'
FROM hapax.outbox_event WHERE type = 'order.created' ORDER BY id OFFSET 1 LIMIT 1;
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, last_error, changed_at)
SELECT 'search', id, 'dead', 10, now(), '422 the field customer.address.street is unknown', now() - interval '7 minutes'
FROM hapax.outbox_event WHERE type IN ('order.created', 'payment.succeeded') ORDER BY id DESC LIMIT 4;
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, order_key, last_error, changed_at)
SELECT 'mail', min(id), 'dead', 10, now(), E'order\nord-1', '550 no such mailbox', now() - interval '26 minutes'
FROM hapax.outbox_event WHERE type = 'order.created';
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, order_key, changed_at)
SELECT 'mail', id, 'blocked', 0, now(), E'order\nord-1', now() - interval '20 minutes'
FROM hapax.outbox_event WHERE type = 'order.shipped';
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, last_error, changed_at)
SELECT 'hooks', id, 'retrying', 4, now() + interval '12 minutes', 'connection refused (10.0.0.7:443)', now() - interval '3 minutes'
FROM hapax.outbox_event WHERE type = 'refund.created';
INSERT INTO hapax.attempt
    (destination, position, number, started_at, duration_ms, outcome, status, error, response_head)
SELECT 'mail', id, n, now() - interval '3 hours' + n * interval '15 minutes', 80 + n * 7, 'rejected', 550,
       '550 no such mailbox', convert_to('550 5.1.1 no such mailbox', 'UTF8')
FROM generate_series(1, 10) AS n, (SELECT min(id) AS id FROM hapax.outbox_event WHERE type = 'order.created') AS first;
INSERT INTO hapax.attempt
    (destination, position, number, started_at, duration_ms, outcome, status, error, response_head)
SELECT 'billing', id, 1, now() - interval '1 minute', 31, 'delivered', 200, NULL, ''
FROM hapax.outbox_event WHERE type = 'order.created';
INSERT INTO hapax.inbox_message
    (consumer, message_id, source, payload_hash, received_at, processed_at, result)
SELECT 'billing', event_id::text, 'shop', sha256(id::text::bytea), now() - interval '50 seconds', now() - interval '49 seconds', 'invoiced'
FROM hapax.outbox_event WHERE type = 'order.created' LIMIT 40;
INSERT INTO hapax.saga
    (id, name, version, tenant, input, headers, state, reason_code, reason_detail, deadline_at, wake_at,
     waiting_for, created_at, ended_at)
SELECT 'checkout-' || n, 'checkout', 1, 'shop', convert_to('{"cart": ' || n || ', "card": "4111111111111111"}', 'UTF8'), '{}',
       CASE WHEN n = 1 THEN 'needs_attention' WHEN n < 5 THEN 'running' ELSE 'completed' END,
       CASE WHEN n = 1 THEN 'unknown' END,
       CASE WHEN n = 1 THEN 'the provider did not say whether the card was charged' END,
       now() + interval '1 hour', CASE WHEN n BETWEEN 2 AND 4 THEN now() + interval '10 minutes' END,
       CASE WHEN n BETWEEN 2 AND 4 THEN 'the signal paid' END,
       now() - interval '40 minutes', CASE WHEN n > 4 THEN now() - interval '30 minutes' END
FROM generate_series(1, 12) AS n;
INSERT INTO hapax.saga_step
    (saga, name, direction, state, provider_key, request, made, error_code, error_detail, attempts, next_at, began_at, ended_at)
VALUES ('checkout-1', 'reserve', 'forward', 'done', NULL, '', convert_to('{"reservation": "r-77"}', 'UTF8'), NULL, NULL, 1,
        now() - interval '39 minutes', now() - interval '39 minutes', now() - interval '39 minutes'),
       ('checkout-1', 'charge', 'forward', 'open', 'checkout-1/charge', convert_to('{"amount": 500, "card": "4111111111111111"}', 'UTF8'), '',
        'timeout', 'no answer within 10 s', 6, now(), now() - interval '38 minutes', NULL);
INSERT INTO hapax.declaration (name, spec, version, created_at, changed_at, changed_by)
VALUES ('search', '{"events":["order.*"],"sink":{"webhook":{"url":"https://search.example.com/index","secret":"***"}}}',
        nextval('hapax.declaration_version'), now() - interval '3 days', now() - interval '3 days', 'alice');
INSERT INTO hapax.audit_log (at, actor, action, object, detail, outcome)
VALUES (now() - interval '3 days', 'alice', 'create', 'destination search', '{"version":1}', 'done'),
       (now() - interval '2 hours', 'bob', 'replay', 'delivery hooks 12', '{"reason":"the receiver is back"}', 'done'),
       (now() - interval '2 hours', 'bob', 'replay_dead_letters', 'destination hooks',
        '{"job":1,"total":1200,"reason":"the receiver is back","arguments":{"filter":{"type":"order.*","tenant":null,"attempts_min":0},"seen":"99954:99954: - 7711952969768183909","until":99,"counted_at":5}}', 'done');
INSERT INTO hapax.job (kind, destination, arguments, state, total, done, next_at, actor, created_at, started_at, ended_at)
VALUES ('replay_dead_letters', 'hooks', '{}', 'done', 1200, 1200, now(), 'bob', now() - interval '2 hours',
        now() - interval '2 hours', now() - interval '115 minutes'),
       ('replay_events', 'billing', '{}', 'done', 1, 0, now(), 'bob', now() - interval '3 hours',
        now() - interval '3 hours', now() - interval '3 hours'),
       ('replay_events', 'search', '{}', 'running', 40000, 12500, now() + interval '1 day', 'alice', now() - interval '4 minutes',
        now() - interval '4 minutes', NULL);
INSERT INTO hapax.idempotency_key
    (tenant, operation, key, fingerprint, state, epoch, lease_until, recovery_point, created_at, expires_at)
VALUES ('acme', 'gateway:POST /orders', 'order-4711', sha256('a'), 'in_progress', 2, now() - interval '1 minute',
        'unknown reason=timeout at=1764294000000 noted=1764294030000 upstream=http://10.0.0.7:8000',
        date_trunc('milliseconds', now() - interval '2 minutes'), now() + interval '1 day');
-- Endpoints of two tenants: one that fails and for which events wait, one that is disabled, and others.
INSERT INTO hapax.endpoint
    (id, tenant, url, description, types, filter, headers, disabled_reason, disabled_at, failures, failing_since,
     created_at, created_by, changed_at, changed_by, version)
SELECT 'ep_' || md5(n::text), CASE WHEN n < 4 THEN 'shop' ELSE 'acme-of-the-north' END,
       'https://hooks-' || n || '.customer.example:8443/in', 'orders of customer ' || n, '["order.*","refund.*"]',
       CASE WHEN n = 1 THEN '{"/amount":{"$gte":100}}' END, '["x-api-key"]',
       CASE WHEN n = 2 THEN 'all 40 attempts in 120 hours failed' END,
       CASE WHEN n = 2 THEN now() - interval '3 hours' END, CASE WHEN n = 1 THEN 7 ELSE 0 END,
       CASE WHEN n = 1 THEN now() - interval '2 hours' END, now() - interval '9 days', 'alice',
       now() - interval '2 days', 'alice', n
FROM generate_series(1, 6) AS n;
UPDATE hapax.endpoint_version SET version = 6;
INSERT INTO hapax.endpoint_delivery
    (endpoint, tenant, position, event_id, type, payload, headers, event_created_at, state, attempt, next_at,
     created_at, ended_at, last_error)
SELECT 'ep_' || md5('1'), 'shop', id, event_id, type, '{}', '{}', created_at,
       CASE WHEN id % 2 = 0 THEN 'waiting' ELSE 'failed' END, 3, now() + id * interval '1 minute',
       now() - interval '1 hour', CASE WHEN id % 2 = 1 THEN now() - interval '10 minutes' END,
       'connection refused (10.0.0.9:8443)'
FROM hapax.outbox_event WHERE type = 'order.created';
INSERT INTO hapax.endpoint_attempt
    (endpoint, tenant, position, event_id, type, number, started_at, duration_ms, outcome, status, error, request,
     response, is_encrypted)
SELECT 'ep_' || md5('1'), 'shop', id, event_id, type, n, now() - (5 - n) * interval '11 minutes', 40 * n,
       CASE WHEN n = 1 AND id % 5 = 0 THEN 'delivered' ELSE 'unavailable' END,
       CASE WHEN n = 1 AND id % 5 = 0 THEN 204 ELSE 503 END,
       CASE WHEN n = 1 AND id % 5 = 0 THEN NULL ELSE '503 the service is being updated' END,
       convert_to('{"content-type":"application/json","webhook-id":"msg_' || id || '","x-api-key":"***"}' || E'\n'
           || '{"type":"order.created","data":{"order":"ord-1","card":"4111111111111111"}}', 'UTF8'),
       convert_to('{"error":"the service is being updated"}', 'UTF8'), false
FROM hapax.outbox_event CROSS JOIN generate_series(1, 3) AS n WHERE type = 'order.created';
INSERT INTO hapax.poll_endpoint
    (name, tenant, all_tenants, types, token, secret, frontier, created_at, created_by, committed_at, last_polled_at)
VALUES ('warehouse', 'shop', false, '["order.*"]', sha256('t'), sha256('s'), 20, now() - interval '9 days', 'alice',
        now() - interval '20 minutes', now() - interval '1 minute'),
       ('analytics', NULL, true, '["*"]', sha256('u'), sha256('v'), 0, now() - interval '1 day', 'alice', NULL, NULL);
