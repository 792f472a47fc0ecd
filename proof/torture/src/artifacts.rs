//! Artifacts of a run: everything that the checkers read, loaded from the files in its folder.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use anyhow::Context as _;
use serde_json::Value;

use crate::{
    clients::{Kind, Operation, body},
    conflict::{self, Conflict},
    deployment::Store,
    lines,
    nemesis::LEDGER,
};

/// Everything that the checkers read.
#[derive(Debug)]
pub(crate) struct Artifacts {
    pub(crate) store: Store,
    pub(crate) operations: Vec<OperationRecord>,
    pub(crate) faults: Vec<Fault>,
    /// Ledger of each receiver.
    pub(crate) hook: Received,
    pub(crate) feed: Received,
    /// Events that the reader received from the broker.
    pub(crate) stream: Received,
    /// Mails that the mailbox received, and its ledger.
    pub(crate) mail: Received,
    pub(crate) mails: Vec<Value>,
    /// The operations that the nemesis started itself as an operator, ordered by time.
    pub(crate) operator_records: Vec<OperatorRecord>,
    /// Other payloads that the operator sent under the keys of requests that ran.
    pub(crate) conflicts: Vec<Conflict>,
    /// Requests that the overloaded receiver counted.
    pub(crate) counted: Vec<Counted>,
    /// Notes of the SQL-contract client by id, each with its final outcome.
    pub(crate) notes: BTreeMap<String, String>,
    /// The providers' own ledgers.
    pub(crate) payment: Vec<Value>,
    pub(crate) shipping: Vec<Value>,
    /// Rows of the store after the run.
    pub(crate) rows: Value,
    /// What the API of a shop returned after the run; null if the run did not request it.
    pub(crate) listed: Value,
    pub(crate) sizes: Vec<Value>,
    /// Summary that the run wrote of itself.
    pub(crate) run: Value,
}

/// An operation, and every attempt at it.
#[derive(Debug)]
pub(crate) struct OperationRecord {
    pub(crate) operation: Operation,
    pub(crate) attempts: Vec<Attempt>,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) is_altered: bool,
    pub(crate) began: u64,
    /// `None` if the client was killed first.
    pub(crate) ended: Option<u64>,
    /// The kind of outcome in the history: `ok`, `fail` or `info`.
    pub(crate) end: String,
    /// The response, if there was one.
    pub(crate) response: Value,
}

/// An injected fault, and when it was over.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: String,
    /// The injection, with its target and its parameters.
    pub(crate) injection: String,
    pub(crate) took_effect: bool,
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// The complete log line: some faults record what was observed meanwhile.
    pub(crate) line: Value,
}

/// An operation of the nemesis, and its outcome.
#[derive(Debug)]
pub(crate) struct OperatorRecord {
    pub(crate) operation: Operation,
    pub(crate) steps: Vec<Step>,
}

/// One action of the nemesis on an operation that it started.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The request was sent to this shop; the response is null if none arrived.
    Requested {
        node: String,
        at: u64,
        response: Value,
    },
    /// Its key was deleted, or has expired by the clock of the database.
    Purged(u64),
    /// A restore removed the effects of the operation.
    Forfeited,
}

/// The ledger of a receiver.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) arrivals: Vec<Arrival>,
    /// Requests whose signature was not valid.
    pub(crate) unverified: Vec<Value>,
    /// Number of requests that followed a redirect.
    pub(crate) redirected: usize,
    /// Events that the rejecting receiver accepted, and those that it always rejects.
    pub(crate) accepted: HashSet<String>,
    pub(crate) rejected: HashSet<String>,
    /// Content of each event, by event id.
    pub(crate) contents: HashMap<String, Value>,
}

/// One attempt of a client of `hapax-client`.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) at: u64,
    pub(crate) id: String,
    pub(crate) client: String,
    pub(crate) retry_after: Option<u64>,
}

/// One request at a receiver.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: u64,
    pub(crate) responded: Option<u64>,
    pub(crate) id: String,
    pub(crate) mode: String,
    pub(crate) sha: String,
    pub(crate) is_effect: bool,
    pub(crate) retry_after: Option<u64>,
}

impl Artifacts {
    /// Reads a run's folder.
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Self> {
        let lines = |name: &str| lines::read(&folder.join(name));
        let json = |name: &str| -> anyhow::Result<Value> {
            let path = folder.join(name);
            let text = std::fs::read(&path);
            let text = text.with_context(|| format!("{} cannot be read", path.display()))?;
            Ok(serde_json::from_slice(&text)?)
        };
        let run = json("run.json")?;
        let store = match run["store"].as_str() {
            Some("postgres") => Store::Postgres,
            _ => Store::Sqlite,
        };
        let mails = lines("mail.jsonl")?;
        let histories = [
            lines::read_all(&folder.join("clients-0.jsonl"))?,
            lines::read_all(&folder.join("clients-1.jsonl"))?,
        ];
        Ok(Self {
            store,
            operations: operations(&histories)?,
            faults: lines("faults.jsonl")?.iter().map(Fault::of).collect(),
            hook: Received::of(&lines("hook.jsonl")?),
            feed: Received::of(&lines("feed.jsonl")?),
            stream: Received::of(&lines("stream.jsonl")?),
            mail: Received::of_mails(&mails),
            mails,
            operator_records: operator_records(&lines(LEDGER)?)?,
            conflicts: conflicts(lines(conflict::LEDGER)?)?,
            counted: lines("counter.jsonl")?.iter().map(Counted::of).collect(),
            notes: notes(&lines("sql-client.jsonl")?),
            payment: made(&lines("payment.jsonl")?),
            shipping: made(&lines("shipping.jsonl")?),
            rows: json("rows.json")?,
            listed: json("listed.json").unwrap_or_default(),
            sizes: lines("sizes.jsonl")?,
            run,
        })
    }

    /// The rows of a table in the end.
    pub(crate) fn rows(&self, table: &str) -> &[Value] {
        self.rows[table].as_array().map_or(&[], Vec::as_slice)
    }

    /// The receivers of events, by name.
    pub(crate) fn receivers(&self) -> [(&'static str, &Received); 4] {
        [
            ("hook", &self.hook),
            ("feed", &self.feed),
            ("stream", &self.stream),
            ("mail", &self.mail),
        ]
    }

    /// The orders that a restore removed, by their ids.
    pub(crate) fn forfeited(&self) -> HashSet<String> {
        let forfeited = self.operator_records.iter().filter(|it| it.is_forfeited());
        let responses = forfeited.flat_map(OperatorRecord::responses);
        let id = |response: &Value| body(response)["id"].as_str().map(str::to_owned);
        responses
            .filter_map(|(_, _, response)| id(response))
            .collect()
    }

    /// The operations of a kind.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &OperationRecord> {
        self.operations
            .iter()
            .filter(move |it| it.operation.kind == kind)
    }

    /// Entries of a kind in the payment provider's ledger.
    pub(crate) fn paid(&self, kind: &str) -> Vec<&Value> {
        entries(&self.payment, kind)
    }

    /// Entries of a kind in the shipping provider's ledger.
    pub(crate) fn shipped(&self, kind: &str) -> Vec<&Value> {
        entries(&self.shipping, kind)
    }
}

impl OperationRecord {
    /// The attempts with the unaltered request.
    pub(crate) fn unaltered_attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(|it| !it.is_altered)
    }

    /// The first final response.
    pub(crate) fn final_attempt(&self) -> Option<&Attempt> {
        self.unaltered_attempts()
            .find(|it| it.response["final"] == true)
    }

    /// The acknowledged effect.
    pub(crate) fn acknowledged(&self) -> Option<Value> {
        let response = &self.final_attempt().filter(|it| it.end == "ok")?.response;
        Some(body(response))
    }

    /// The client of the operation, and its key.
    pub(crate) fn name(&self) -> String {
        let Operation {
            tenant, key, kind, ..
        } = &self.operation;
        format!("{tenant}'s {kind:?} {key}")
    }
}

impl Fault {
    fn of(line: &Value) -> Self {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        Self {
            kind: text("fault"),
            injection: text("injection"),
            took_effect: line["took_effect"] == true,
            from: line["from"].as_u64().unwrap_or_default(),
            until: line["until"].as_u64().unwrap_or_default(),
            line: line.clone(),
        }
    }

    /// The failpoint of a process: `name:nth`, with the action unless it is a kill.
    pub(crate) fn failpoint(&self) -> &str {
        self.injection.split('"').nth(1).unwrap_or_default()
    }

    /// Whether it kills a process or crashes the server. A process that fails or is delayed at a
    /// failpoint continues.
    pub(crate) fn is_deadly(&self) -> bool {
        match self.kind.as_str() {
            "failpoint" => self.failpoint().split(':').count() == 2,
            "crash" => true,
            kind => kind.starts_with("kill"),
        }
    }
}

impl OperatorRecord {
    /// Whether a restore removed it.
    pub(crate) fn is_forfeited(&self) -> bool {
        self.steps.iter().any(|it| matches!(it, Step::Forfeited))
    }

    /// How often its key was deleted, or has expired.
    pub(crate) fn purges(&self) -> usize {
        let purged = |it: &&Step| matches!(it, Step::Purged(_));
        self.steps.iter().filter(purged).count()
    }

    /// The responses, each with the shop that sent it and the time of the request.
    pub(crate) fn responses(&self) -> impl Iterator<Item = (&str, u64, &Value)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Requested { node, at, response } if !response.is_null() => {
                Some((node.as_str(), *at, response))
            }
            _ => None,
        })
    }

    /// The client of the operation, and its key.
    pub(crate) fn name(&self) -> String {
        let Operation {
            tenant, key, kind, ..
        } = &self.operation;
        format!("the operator's {kind:?} {key} for {tenant}")
    }
}

impl Counted {
    fn of(line: &Value) -> Self {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        Self {
            at: line["at"].as_u64().unwrap_or_default(),
            id: text("id"),
            client: text("client"),
            retry_after: line["retry_after"].as_u64(),
        }
    }
}

impl Received {
    fn of(lines: &[Value]) -> Self {
        let mut received = Self::default();
        let mut numbers = HashMap::new();
        for line in lines {
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            let at = line["at"].as_u64().unwrap_or_default();
            match line["what"].as_str() {
                Some("arrived") => {
                    numbers.insert(line["n"].as_u64(), received.arrivals.len());
                    if let Some(content) = line["body"].as_str() {
                        let content = serde_json::from_str(content).unwrap_or_default();
                        received.contents.insert(text("id"), content);
                    }
                    received.arrivals.push(Arrival {
                        at,
                        responded: None,
                        id: text("id"),
                        mode: text("mode"),
                        sha: text("sha"),
                        is_effect: line["effect"] == true,
                        retry_after: line["retry_after"].as_u64(),
                    });
                }
                Some("responded") => {
                    if let Some(index) = numbers.get(&line["n"].as_u64()) {
                        received.arrivals[*index].responded = Some(at);
                    }
                }
                Some("accepted") => drop(received.accepted.insert(text("id"))),
                Some("rejected") => drop(received.rejected.insert(text("id"))),
                Some("redirected") => received.redirected += 1,
                _ => received.unverified.push(line.clone()),
            }
        }
        received
    }

    /// The mailbox records only that a mail arrived, under this name, and not its content.
    fn of_mails(mails: &[Value]) -> Self {
        let mut received = Self::default();
        for mail in mails {
            let text = |name: &str| mail[name].as_str().unwrap_or_default().to_owned();
            received.contents.insert(text("id"), Value::Null);
            received.arrivals.push(Arrival {
                at: mail["at"].as_u64().unwrap_or_default(),
                responded: None,
                id: text("id"),
                mode: text("mode"),
                sha: String::new(),
                is_effect: mail["mode"] != "temporary failure",
                retry_after: None,
            });
        }
        received
    }
}

fn conflicts(ledger: Vec<Value>) -> anyhow::Result<Vec<Conflict>> {
    let conflicts = ledger.into_iter().map(serde_json::from_value);
    Ok(conflicts.collect::<Result<_, _>>()?)
}

fn operator_records(ledger: &[Value]) -> anyhow::Result<Vec<OperatorRecord>> {
    let mut records: Vec<OperatorRecord> = Vec::new();
    let mut indexes = HashMap::new();
    for line in ledger {
        let operation: Operation = serde_json::from_value(line["operation"].clone())?;
        let name = (operation.tenant.clone(), operation.key.clone());
        let index = *indexes.entry(name).or_insert_with(|| {
            records.push(OperatorRecord {
                operation,
                steps: Vec::new(),
            });
            records.len() - 1
        });
        let at = line["at"].as_u64().unwrap_or_default();
        records[index].steps.push(match line["what"].as_str() {
            Some("forfeited") => Step::Forfeited,
            Some("purged" | "expired") => Step::Purged(at),
            _ => Step::Requested {
                node: line["node"].as_str().unwrap_or_default().to_owned(),
                at,
                response: line["response"].clone(),
            },
        });
    }
    Ok(records)
}

/// Acknowledged operations of the clients in this folder so far, in the order of their numbers.
pub(crate) fn acknowledged(folder: &Path) -> anyhow::Result<Vec<OperationRecord>> {
    let lines = |name: &str| lines::read_all(&folder.join(name));
    let mut operations = operations(&[lines("clients-0.jsonl")?, lines("clients-1.jsonl")?])?;
    operations.retain(|it| it.acknowledged().is_some());
    operations.sort_by_key(|it| it.final_attempt().and_then(|it| it.ended));
    Ok(operations)
}

/// Effects at a provider; a refusal has no effect.
fn made(ledger: &[Value]) -> Vec<Value> {
    let made = ledger
        .iter()
        .filter(|line| line["status"].as_u64() < Some(300));
    made.map(|line| line["object"].clone()).collect()
}

/// Outcome of each note; the outcome is unknown if the writer was killed during its commit.
fn notes(history: &[Value]) -> BTreeMap<String, String> {
    let mut notes = BTreeMap::new();
    for line in history {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        notes.insert(text("value"), text("type"));
    }
    notes
}

fn entries<'a>(ledger: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let entries = ledger.iter();
    entries.filter(|entry| entry["kind"] == kind).collect()
}

fn operations(histories: &[Vec<Value>]) -> anyhow::Result<Vec<OperationRecord>> {
    let mut operations: Vec<OperationRecord> = Vec::new();
    for history in histories {
        let mut indexes = HashMap::new();
        let mut attempts = HashMap::new();
        for line in history {
            let at = line["time"].as_u64().unwrap_or_default();
            let process = line["process"].as_u64();
            if line["type"] == "invoke" {
                let operation: Operation = serde_json::from_value(line["value"].clone())?;
                let name = (operation.tenant.clone(), operation.key.clone());
                let is_altered = line["altered"] == true;
                let index = *indexes.entry(name).or_insert_with(|| {
                    operations.push(OperationRecord {
                        operation,
                        attempts: Vec::new(),
                    });
                    operations.len() - 1
                });
                attempts.insert(process, (index, operations[index].attempts.len()));
                operations[index].attempts.push(Attempt {
                    is_altered,
                    began: at,
                    ended: None,
                    end: "info".to_owned(),
                    response: Value::Null,
                });
            } else if line["type"] != "memory"
                && let Some((index, attempt)) = attempts.get(&process)
            {
                let attempt = &mut operations[*index].attempts[*attempt];
                attempt.ended = Some(at);
                line["type"]
                    .as_str()
                    .unwrap_or_default()
                    .clone_into(&mut attempt.end);
                attempt.response = line["value"].clone();
            }
        }
    }
    Ok(operations)
}
