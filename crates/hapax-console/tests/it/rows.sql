-- Keys, and the events that their transactions emitted.
DO $$
DECLARE
    evil text := '<script>alert(''x'')</script>';
BEGIN
    PERFORM hapax.claim('acme', 'POST /orders', 'key-of-acme', sha256('a'));
    PERFORM hapax.emit('order.created', '{"amount": 500, "card": "4111111111111111", "note": "hello"}',
        'order', 'o-1', NULL, '{"source": "checkout"}');
    PERFORM hapax.complete('acme', 'POST /orders', 'key-of-acme', 201,
        '[["content-type", "application/json"]]', convert_to('{"id": "o-1", "email": "ann@example.com"}', 'UTF8'));
    PERFORM hapax.claim('globex', 'POST /orders', 'key-of-globex', sha256('b'));
    PERFORM hapax.emit('order.paid', '{"secret_of": "globex"}', 'order', 'o-globex');
    PERFORM hapax.complete('globex', 'POST /orders', 'key-of-globex', 201);
    PERFORM hapax.claim('acme', 'POST /evil', evil, sha256('c'));
    PERFORM hapax.emit('order.evil', jsonb_build_object('said', evil)::text, 'order', evil, NULL,
        jsonb_build_object('said', evil));
    PERFORM hapax.complete('acme', 'POST /evil', evil, 200, '[["x-said", "<script>alert(1)</script>"]]',
        convert_to('<script>alert(1)</script>', 'UTF8'));
    PERFORM hapax.emit('order.shipped', '{"n": 4}', 'order', 'o-1', NULL, '{}', 'acme');
END
$$;
-- `emit` rejects such a type, but a row may contain it.
UPDATE hapax.outbox_event SET type = '<script>alert(''x'')</script>' WHERE type = 'order.evil';
-- The next statements are in the order of the events' positions.
INSERT INTO hapax.destination (name, first_opened_at, opened_at)
VALUES ('mail', now(), now()), ('hooks', now(), now()),
       ('<script>evil', now(), now());
-- A live relay owns all partitions and has read all events.
INSERT INTO hapax.lease (partition, epoch, node, taken_at)
SELECT name, 1, 'relay-1', now() FROM hapax.destination;
INSERT INTO hapax.heartbeat (half, number, node, is_alive, seen_at)
VALUES (0, nextval('hapax.heartbeat_number'), 'relay-1', true, now() + interval '1 day');
INSERT INTO hapax.checkpoint_log
    (half, number, partition, epoch, frontier, snapshot, settled, offered, written_at)
SELECT 0, nextval('hapax.checkpoint_number'), name, 1, (SELECT max(id) FROM hapax.outbox_event), NULL, '', '', now()
FROM hapax.destination;
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, order_key, last_error, changed_at)
SELECT 'mail', id, 'dead', 10, now(), E'order\no-1', '550 <script>alert(''x'')</script> no such mailbox', now()
FROM hapax.outbox_event WHERE type = 'order.created';
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, order_key, changed_at)
SELECT 'mail', id, 'blocked', 0, now(), E'order\no-1', now()
FROM hapax.outbox_event WHERE type = 'order.shipped';
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, last_error, changed_at)
SELECT 'hooks', id, 'retrying', 4, now() + interval '5 minutes', 'connection refused', now()
FROM hapax.outbox_event WHERE type = 'order.paid';
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, last_error, changed_at)
SELECT '<script>evil', id, 'dead', 2, now(), '<script>alert(''x'')</script>', now()
FROM hapax.outbox_event WHERE type LIKE '<script>%';
INSERT INTO hapax.attempt
    (destination, position, number, started_at, duration_ms, outcome, status, error, response_head)
SELECT 'mail', id, 10, now(), 120, 'rejected', 550, '<script>alert(''x'')</script>',
       convert_to('<script>alert(''x'')</script>', 'UTF8')
FROM hapax.outbox_event WHERE type = 'order.created';
INSERT INTO hapax.inbox_message
    (consumer, message_id, source, payload_hash, received_at, processed_at, result)
VALUES ('billing', 'm-1', 'shop', sha256('m'), now(), now(), 'billed'),
       ('<script>alert(''x'')</script>', '<script>alert(''x'')</script>', '<script>alert(''x'')</script>',
        sha256('e'), now(), NULL, '<script>alert(''x'')</script>');
INSERT INTO hapax.saga
    (id, name, version, tenant, input, headers, state, reason_code, reason_detail, deadline_at,
     wake_at, created_at)
VALUES ('saga-1', 'checkout', 1, 'acme', convert_to('{"cart": 7, "card": "4111"}', 'UTF8'), '{}',
        'needs_attention', 'unknown', 'nobody destinations whether the card was charged', now() + interval '1 hour', NULL, now()),
       ('saga-2', 'checkout', 1, 'globex', convert_to('{}', 'UTF8'), '{}', 'running', NULL, NULL,
        now() + interval '1 hour', now() - interval '10 minutes', now() - interval '10 minutes'),
       ('<script>alert(''x'')</script>', '<script>alert(''x'')</script>', 1, 'acme',
        convert_to('"<script>alert(1)</script>"', 'UTF8'), '{}', 'needs_attention',
        '<script>alert(''x'')</script>', '<script>alert(''x'')</script>', now() + interval '1 hour', NULL, now());
INSERT INTO hapax.saga_step
    (saga, name, direction, state, provider_key, request, made, error_code, error_detail, attempts, next_at, began_at)
VALUES ('saga-1', 'charge', 'forward', 'open', 'saga-1-charge', convert_to('{"amount": 500}', 'UTF8'), '',
        'timeout', 'no answer', 3, now(), now()),
       ('<script>alert(''x'')</script>', '<script>alert(''x'')</script>', 'forward', 'open', NULL,
        convert_to('<script>alert(1)</script>', 'UTF8'), '', '<script>alert(''x'')</script>',
        '<script>alert(''x'')</script>', 3, now(), now());
INSERT INTO hapax.declaration (name, spec, version, created_at, changed_at, changed_by, paused_at, paused_by)
VALUES ('turtle', '{"sink":{"webhook":{"url":"https://<script>alert(1)</script>.example","secret":"***"}},"tenant":"globex"}',
        nextval('hapax.declaration_version'), now(), now(), '<script>alert(''x'')</script>', now(), '<script>alert(''x'')</script>');
INSERT INTO hapax.audit_log (at, actor, tenant, action, object, detail, outcome)
VALUES (now(), '<script>alert(''x'')</script>', NULL, '<script>alert(''x'')</script>',
        '<script>alert(''x'')</script>', '{"said":"<script>alert(1)</script>"}', 'done');
INSERT INTO hapax.job
    (kind, destination, arguments, state, next_at, error, actor, created_at)
VALUES ('replay_dead_letters', '<script>alert(''x'')</script>', '{}', 'waiting', now() + interval '1 day',
        '<script>alert(''x'')</script>', '<script>alert(''x'')</script>', now());
-- Endpoints of two tenants: one that is slowed and for which an event waits, one that is disabled, and one that
-- works.
INSERT INTO hapax.endpoint
    (id, tenant, url, description, types, headers, disabled_reason, disabled_at, failures, failing_since,
     created_at, created_by, changed_at, changed_by, version)
VALUES ('ep_orders', 'acme', 'https://hooks.acme.example/secret-path?key=secret-key', 'the orders', '["order.*"]',
        '["x-api-key"]', NULL, NULL, 3, now() - interval '1 hour', now(), 'ops', now(), 'ops', 1),
       ('ep_gone', 'acme', 'https://gone.acme.example/', '<script>alert(''x'')</script>', '["*"]', '[]',
        'it responded with 410 <script>alert(''x'')</script>', now() - interval '2 hours', 0, NULL,
        now(), 'ops', now(), 'relay', 2),
       ('ep_globex', 'globex', 'https://hooks.globex.example/', '', '["*"]', '[]', NULL, NULL, 0, NULL,
        now(), 'ops', now(), 'ops', 3);
UPDATE hapax.endpoint
SET failures = 5, slow_until = now() + interval '30 seconds', last_error = 'status 503'
WHERE id = 'ep_orders';
UPDATE hapax.endpoint_version SET version = 3;
INSERT INTO hapax.endpoint_delivery
    (endpoint, tenant, position, event_id, type, payload, headers, event_created_at, state, attempt, next_at,
     created_at, ended_at, last_error)
SELECT 'ep_orders', tenant, id, event_id, type, '{}', '{}', created_at,
       CASE WHEN type = 'order.created' THEN 'waiting' ELSE 'failed' END, 2, now() + interval '5 minutes',
       now(), CASE WHEN type <> 'order.created' THEN now() END, '503 no field'
FROM hapax.outbox_event WHERE type IN ('order.created', 'order.shipped') AND tenant = 'acme';
INSERT INTO hapax.endpoint_attempt
    (endpoint, tenant, position, event_id, type, number, started_at, duration_ms, outcome, status, error, request,
     response, is_encrypted)
SELECT 'ep_orders', tenant, id, event_id, type, 2, now() - interval '1 minute', 80, 'unavailable', 503, '503 no field',
       convert_to('{"webhook-id":"msg_1","x-api-key":"***"}' || E'\n' || '{"amount":500,"card":"4111111111111111"}', 'UTF8'),
       convert_to('{"email":"ann@example.com","why":"no field"}', 'UTF8'), false
FROM hapax.outbox_event WHERE type = 'order.created' AND tenant = 'acme';
-- Polling endpoints of two tenants, whose consumers have committed nothing.
INSERT INTO hapax.poll_endpoint
    (name, tenant, all_tenants, types, token, secret, frontier, created_at, created_by, last_polled_at)
VALUES ('acme-poll', 'acme', false, '["order.*"]', sha256('t'), sha256('s'), 0, now(), 'ops', now()),
       ('globex-poll', 'globex', false, '["*"]', sha256('u'), sha256('v'), 0, now(), 'ops', NULL);
