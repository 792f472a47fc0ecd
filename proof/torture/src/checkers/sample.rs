//! Sample artifacts: a small run without faults, with one acknowledged operation of each kind.

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};

use crate::{
    artifacts::Artifacts,
    clients::{Operation, digest},
};

pub(super) const SECOND: u64 = 1_000_000_000;

/// Ledgers of the receivers that get every event.
pub(super) const RECEIVERS: [&str; 3] = ["hook.jsonl", "feed.jsonl", "stream.jsonl"];

/// The files of a run, before they are written.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) lines: BTreeMap<&'static str, Vec<Value>>,
    pub(super) rows: Value,
    pub(super) run: Value,
    /// What the API returns, if it differs from the rows.
    pub(super) listed: Option<Value>,
}

impl Sample {
    /// A run without violations, on PostgreSQL.
    pub(super) fn sound() -> Self {
        let mut sample = Self {
            lines: BTreeMap::new(),
            rows: rows(),
            run: json!({ "store": "postgres", "drained_ms": 100, "quiet_from": 90 * SECOND }),
            listed: None,
        };
        let of_it = |version: u64, amount: u64| json!({ "id": "ord_1", "version": version, "note": "alice/0", "amount": amount });
        let (order, updated) = (of_it(1, 1000), of_it(2, 1010));
        sample.acknowledge_all(&order, &updated);
        sample.write_notes();
        sample.deliver_all(&order, &updated);
        sample.pay();
        sample.operate();
        sample.add_faults();
        sample
    }

    /// One operation of each kind, with its response.
    fn acknowledge_all(&mut self, order: &Value, updated: &Value) {
        let alice = "alice";
        self.acknowledge(&Operation::order(alice, 0), 201, order);
        let update = Operation::update(alice, 1, order, "\"1\"").expect("it has an id");
        self.acknowledge(&update, 200, updated);
        self.acknowledge(&Operation::payment(alice, 2), 201, &json!({ "id": "ch_1" }));
        self.acknowledge(
            &Operation::refund(alice, 3, "ch_1", 1020),
            201,
            &json!({ "id": "rf_1" }),
        );
        self.acknowledge(&Operation::signup(alice, 4), 201, &json!({ "id": "usr_1" }));
        let message = Operation::message(alice, 5);
        self.acknowledge(&message, 200, &Value::Null);
        self.acknowledge(&Operation::market(alice, 14, &message), 200, &Value::Null);
        self.acknowledge(
            &Operation::checkout(alice, 6, true),
            201,
            &json!({ "id": "chk_1" }),
        );
        self.acknowledge(
            &Operation::upload(alice, 13),
            201,
            &json!({ "id": "upl_1" }),
        );
    }

    /// The events of these operations, and the mail to the new user.
    fn deliver_all(&mut self, order: &Value, updated: &Value) {
        self.deliver("order.created", "ord_1", order);
        self.deliver("order.updated", "ord_1/2", updated);
        self.deliver("payment.succeeded", "ch_1", &json!({ "charge_id": "ch_1" }));
        self.deliver("refund.succeeded", "rf_1", &json!({ "refund_id": "rf_1" }));
        self.deliver("user.signed_up", "usr_1", &json!({ "user_id": "usr_1" }));
        self.deliver("file.uploaded", "upl_1", &json!({ "upload_id": "upl_1" }));
        self.deliver(
            "checkout.completed",
            "chk_1",
            &json!({ "checkout_id": "chk_1" }),
        );
        self.deliver("note.written", "note-0", &json!({ "id": "note-0" }));
        for id in ["ev_ch_1", "ev_ord_1"] {
            self.add("feed.jsonl", json!({ "what": "accepted", "id": id }));
        }
        self.add(
            "mail.jsonl",
            json!({
                "what": "mail", "id": "<usr_1>", "at": 5 * SECOND, "mode": "normal",
                "to": ["n4@alice.example"],
            }),
        );
    }

    /// Effects at the providers.
    fn pay(&mut self) {
        for (file, made) in [
            (
                "payment.jsonl",
                json!({ "kind": "charge", "id": "ch_1", "amount": 1020 }),
            ),
            (
                "payment.jsonl",
                json!({ "kind": "refund", "charge": "ch_1", "amount": 520 }),
            ),
            (
                "payment.jsonl",
                json!({ "kind": "authorization", "amount": 500 }),
            ),
            ("payment.jsonl", json!({ "kind": "capture", "amount": 500 })),
            ("shipping.jsonl", json!({ "kind": "shipment" })),
        ] {
            self.add(file, json!({ "status": 201, "object": made }));
        }
    }

    /// Actions of the nemesis: a key deleted between two responses, an order that a restore
    /// removed, and a payment at two shops at once.
    fn operate(&mut self) {
        let purged = Operation::order("alice", 31);
        let forfeited = Operation::order("bob", 47);
        let payment = Operation::payment("alice", 63);
        let made = |id: &str| response(201, "stored", &json!({ "id": id }));
        self.operator_line("requested", &purged, 10, &made("ord_2"));
        self.operator_line("purged", &purged, 11, &Value::Null);
        self.operator_line("requested", &purged, 13, &made("ord_3"));
        self.operator_line("forfeited", &forfeited, 14, &Value::Null);
        self.operator_line("requested", &forfeited, 14, &made("ord_4"));
        for at in [15, 16] {
            self.operator_line("requested", &payment, at, &made("ch_2"));
        }
        let amount = |operation: &Operation| operation.body["amount"].clone();
        for id in ["ord_2", "ord_3"] {
            let row = json!({
                "id": id, "note": purged.body["note"], "amount": amount(&purged), "version": 1,
            });
            self.push("orders", row);
            self.deliver("order.created", id, &json!({ "id": id, "version": 1 }));
            self.add(
                "feed.jsonl",
                json!({ "what": "accepted", "id": format!("ev_{id}") }),
            );
        }
        // Its event was delivered, and its row is gone.
        self.deliver(
            "order.created",
            "ord_4",
            &json!({ "id": "ord_4", "version": 1 }),
        );
        let charge = json!({ "id": "ch_2", "amount": amount(&payment) });
        self.push("charges", charge);
        let entry = json!({ "kind": "charge", "charge_id": "ch_2", "amount": amount(&payment) });
        self.push("ledger", entry);
        self.deliver("payment.succeeded", "ch_2", &json!({ "charge_id": "ch_2" }));
        self.add("feed.jsonl", json!({ "what": "accepted", "id": "ev_ch_2" }));
        let charge = json!({ "kind": "charge", "id": "ch_2", "amount": amount(&payment) });
        self.add("payment.jsonl", json!({ "status": 201, "object": charge }));
    }

    /// A kill of a shop, and one of a relay.
    fn add_faults(&mut self) {
        let (from, until) = (20 * SECOND, 21 * SECOND);
        for injection in ["Kill(Shop(0), 0ns)", "Kill(Relay(0), 0ns)"] {
            let kill = json!({
                "fault": "kill", "injection": injection, "took_effect": true, "from": from,
                "until": until,
            });
            self.add("faults.jsonl", kill);
        }
    }

    /// A line in the ledger of the nemesis.
    pub(super) fn operator_line(
        &mut self,
        what: &str,
        operation: &Operation,
        second: u64,
        response: &Value,
    ) {
        self.operator_line_at("shop-0", what, operation, second * SECOND, response);
    }

    /// The same, at this shop and moment.
    pub(super) fn operator_line_at(
        &mut self,
        node: &str,
        what: &str,
        operation: &Operation,
        at: u64,
        response: &Value,
    ) {
        let operation = serde_json::to_value(operation).expect("an operation is JSON");
        self.add(
            "operator.jsonl",
            json!({ "what": what, "node": node, "at": at, "operation": operation, "response": response }),
        );
    }

    /// One row more of a table.
    pub(super) fn push(&mut self, table: &str, row: Value) {
        let rows = self.rows[table].as_array_mut().expect("it is a list");
        rows.push(row);
    }

    /// History of an SQL-contract client: one note committed, one rolled back, one with an unknown
    /// outcome.
    fn write_notes(&mut self) {
        for (word, id) in [
            ("invoke", 0),
            ("ok", 0),
            ("invoke", 1),
            ("fail", 1),
            ("invoke", 2),
        ] {
            let note = json!({ "type": word, "process": id, "value": format!("note-{id}") });
            self.add("sql-client.jsonl", note);
        }
    }

    pub(super) fn add(&mut self, file: &'static str, line: Value) {
        self.lines.entry(file).or_default().push(line);
    }

    /// Repeats an operation and records this response.
    pub(super) fn repeat(&mut self, operation: &Operation, word: &str, response: Value) {
        self.attempt(operation, false, word, response, SECOND);
    }

    /// The same, at this moment.
    pub(super) fn repeat_at(
        &mut self,
        operation: &Operation,
        word: &str,
        response: Value,
        at: u64,
    ) {
        self.attempt(operation, false, word, response, at);
    }

    /// The same, of a request that was altered.
    pub(super) fn repeat_altered(&mut self, operation: &Operation, word: &str, response: Value) {
        self.attempt(operation, true, word, response, SECOND);
    }

    fn attempt(
        &mut self,
        operation: &Operation,
        is_altered: bool,
        word: &str,
        response: Value,
        at: u64,
    ) {
        let file = "clients-0.jsonl";
        let number = self.lines.get(file).map_or(0, Vec::len);
        let line = |word: &str, value: Value| {
            json!({
                "type": word, "process": number, "time": at, "tenant": operation.tenant,
                "key": operation.key, "altered": is_altered, "value": value,
            })
        };
        let operation = serde_json::to_value(operation).expect("an operation is JSON");
        self.add(file, line("invoke", operation));
        self.add(file, line(word, response));
    }

    /// One delivery to each receiver, to the broker and into the remote database.
    pub(super) fn deliver(&mut self, kind: &str, subject: &str, data: &Value) {
        let id = format!("ev_{subject}");
        let body = json!({ "type": kind, "data": data }).to_string();
        for file in RECEIVERS {
            self.arrive(file, &id, "normal", 5 * SECOND, Some(&body));
        }
        let row = json!({
            "event_id": id, "type": kind, "aggregate_id": data["id"],
            "sequence": data["version"], "data": data,
        });
        let remote = self.rows["remote"].as_array_mut();
        remote.expect("it is a list").push(row);
    }

    /// A line of a receiver's ledger; with a body, the event has its effect.
    pub(super) fn arrive(
        &mut self,
        file: &'static str,
        id: &str,
        mode: &str,
        at: u64,
        body: Option<&str>,
    ) {
        let number = self.lines.get(file).map_or(0, Vec::len);
        let line = json!({
            "what": "arrived", "n": number, "id": id, "mode": mode, "effect": body.is_some(),
            "sha": id, "body": body, "at": at, "retry_after": (mode == "busy").then_some(2),
        });
        self.add(file, line);
    }

    /// The artifacts that the checkers read.
    pub(super) fn artifacts(&self) -> Artifacts {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = |name: &str| folder.path().join(name);
        for (name, lines) in &self.lines {
            let lines: Vec<_> = lines.iter().map(Value::to_string).collect();
            fs::write(path(name), lines.join("\n") + "\n").expect("a file can be written");
        }
        let listed = self.listed.clone().unwrap_or_else(|| listed(&self.rows));
        for (name, value) in [
            ("rows.json", &self.rows),
            ("run.json", &self.run),
            ("listed.json", &listed),
        ] {
            fs::write(path(name), value.to_string()).expect("a file can be written");
        }
        Artifacts::read(folder.path()).expect("the files are as a run leaves them")
    }

    fn acknowledge(&mut self, operation: &Operation, status: u16, body: &Value) {
        for idempotency_status in ["stored", "replayed"] {
            let response = response(status, idempotency_status, body);
            self.repeat(operation, "ok", response);
        }
    }
}

/// A response in the format of the history.
pub(super) fn response(status: u16, idempotency_status: &str, body: &Value) -> Value {
    json!({
        "status": status, "idempotency_status": idempotency_status, "final": status < 500,
        "headers": [],
        "body": body.to_string(),
    })
}

/// What the API of a shop with these rows returns.
pub(super) fn listed(rows: &Value) -> Value {
    let of = |table: &str| rows[table].as_array().cloned().unwrap_or_default();
    let orders = of("orders").into_iter().map(|order| {
        let tenant = order["note"]
            .as_str()
            .and_then(|note| note.split('/').next());
        json!({ "tenant": tenant, "order": order })
    });
    let orders: Vec<_> = orders.collect();
    let read = of("orders").into_iter();
    let read: BTreeMap<_, _> = read
        .map(|it| (it["id"].as_str().unwrap_or_default().to_owned(), it))
        .collect();
    let ledger = ["ledger", "messages", "market"].map(of).concat();
    json!({ "orders": orders, "ledger": ledger, "read": read, "demo": null })
}

/// The rows that the shops and the destinations have at the end.
fn rows() -> Value {
    let picture = Operation::upload("alice", 13)
        .file()
        .expect("it has a colour");
    let cart = json!({ "items": [{ "sku": "sku_tea", "quantity": 1 }], "amount": 500 });
    json!({
        "orders": [{ "id": "ord_1", "note": "alice/0", "amount": 1010, "version": 2 }],
        "charges": [{ "id": "ch_1", "amount": 1020 }],
        "refunds": [{ "id": "rf_1", "charge_id": "ch_1", "amount": 520 }],
        "users": [{ "id": "usr_1", "email": "n4@alice.example" }],
        "uploads": [{
            "id": "upl_1", "name": "alice-13.png", "bytes": 70, "kept": 70,
            "content": digest(&picture), "state": "ready", "thumbnails": 2,
        }],
        "messages": [{ "charge_id": "ch_alice_5", "amount": 1050 }],
        "market": [{ "charge_id": "ch_alice_5", "amount": 1050 }],
        "ledger": [
            { "kind": "charge", "charge_id": "ch_1", "amount": 1020 },
            { "kind": "refund", "charge_id": "ch_1", "amount": 520 },
            { "kind": "charge", "charge_id": "cap_1", "amount": 500 },
        ],
        "sagas": [{ "id": "chk_1", "state": "completed", "cart": cart.to_string() }],
        "stock": [
            { "sku": "sku_mug", "reserved": 0 }, { "sku": "sku_tea", "reserved": 1 },
        ],
        "keys": [{ "count": 7 }],
        "notes": [{ "id": "note-0" }],
        "unfinished": [{
            "destination": "rejecting", "state": "dead", "event_id": "ev_usr_1", "attempts": 3,
        }],
        "remote": [], "takeovers": [{ "epochs": 3 }],
    })
}
