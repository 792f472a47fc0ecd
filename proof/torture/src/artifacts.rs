//! Artifacts of a run: everything that the checkers read, loaded from the files in its folder.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use anyhow::Context as _;
use serde_json::Value;

use crate::{
    clients::{Kind, Operation},
    deployment::Store,
    lines,
    nemesis::LEDGER,
};

/// Everything that the checkers read.
#[derive(Debug)]
pub(crate) struct Artifacts {
    pub(crate) store: Store,
    pub(crate) operations: Vec<Wished>,
    pub(crate) faults: Vec<Fault>,
    /// Ledger of each receiver.
    pub(crate) hook: Received,
    pub(crate) feed: Received,
    /// Events that the reader received from the broker.
    pub(crate) stream: Received,
    /// Mails that the mailbox received, and its ledger.
    pub(crate) mail: Received,
    pub(crate) mails: Vec<Value>,
    /// What the nemesis did to operations that it started itself, ordered by time.
    pub(crate) operated: Vec<Operated>,
    /// Requests that the overloaded receiver saw.
    pub(crate) asked: Vec<Asked>,
    /// Notes of the SQL-contract client by id, each with its final outcome.
    pub(crate) notes: BTreeMap<String, String>,
    /// The providers' own ledgers.
    pub(crate) payment: Vec<Value>,
    pub(crate) shipping: Vec<Value>,
    /// Rows of the store after the run.
    pub(crate) rows: Value,
    /// What the API of a shop showed then; null for a run that did not ask.
    pub(crate) listed: Value,
    pub(crate) sizes: Vec<Value>,
    /// Summary that the run wrote of itself.
    pub(crate) run: Value,
}

/// An operation, and every attempt at it.
#[derive(Debug)]
pub(crate) struct Wished {
    pub(crate) operation: Operation,
    pub(crate) attempts: Vec<Attempt>,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) is_altered: bool,
    pub(crate) began: u64,
    /// None where the client was killed first.
    pub(crate) ended: Option<u64>,
    /// The kind of outcome in the history: `ok`, `fail` or `info`.
    pub(crate) end: String,
    /// The answer, where there was one.
    pub(crate) answer: Value,
}

/// An injected fault, and when it was over.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) word: String,
    pub(crate) how: String,
    pub(crate) bit: bool,
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// The complete log line: some faults record what was observed meanwhile.
    pub(crate) told: Value,
}

/// An operation of the nemesis, and its outcome.
#[derive(Debug)]
pub(crate) struct Operated {
    pub(crate) operation: Operation,
    pub(crate) steps: Vec<Step>,
}

/// One action of the nemesis on an operation that it started.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The request was sent to this shop; the response is null if none arrived.
    Asked {
        node: String,
        at: u64,
        answer: Value,
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
    /// Requests whose signature did not fit.
    pub(crate) refused: Vec<Value>,
    /// Requests that followed a redirect.
    pub(crate) strayed: usize,
    /// Events that the refusing receiver accepted, and those that it always refuses.
    pub(crate) picked: HashSet<String>,
    pub(crate) spurned: HashSet<String>,
    /// Content of each event, by event id.
    pub(crate) said: HashMap<String, Value>,
}

/// One attempt of a client of `hapax-client`.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) at: u64,
    pub(crate) id: String,
    pub(crate) who: String,
    pub(crate) retry_after: Option<u64>,
}

/// One request at a receiver.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: u64,
    pub(crate) answered: Option<u64>,
    pub(crate) id: String,
    pub(crate) mood: String,
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
            operated: operated(&lines(LEDGER)?)?,
            asked: lines("counter.jsonl")?.iter().map(Asked::of).collect(),
            notes: notes(&lines("neighbour.jsonl")?),
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

    /// Whoever is sent events, by name.
    pub(crate) fn receivers(&self) -> [(&'static str, &Received); 4] {
        [
            ("hook", &self.hook),
            ("feed", &self.feed),
            ("stream", &self.stream),
            ("mail", &self.mail),
        ]
    }

    /// The orders that a restore has taken back, by their ids.
    pub(crate) fn forfeited(&self) -> HashSet<String> {
        let forfeited = self.operated.iter().filter(|it| it.is_forfeited());
        let answers = forfeited.flat_map(Operated::answers);
        let id = |answer: &Value| body(answer)["id"].as_str().map(str::to_owned);
        answers.filter_map(|(_, _, answer)| id(answer)).collect()
    }

    /// The operations of a kind.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Wished> {
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

impl Wished {
    /// The attempts with the unaltered request.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(|it| !it.is_altered)
    }

    /// The first final response.
    pub(crate) fn lasting(&self) -> Option<&Attempt> {
        self.asked().find(|it| it.answer["lasting"] == true)
    }

    /// The acknowledged effect.
    pub(crate) fn granted(&self) -> Option<Value> {
        let answer = &self.lasting().filter(|it| it.end == "ok")?.answer;
        Some(body(answer))
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
            word: text("blow"),
            how: text("how"),
            bit: line["bit"] == true,
            from: line["from"].as_u64().unwrap_or_default(),
            until: line["until"].as_u64().unwrap_or_default(),
            told: line.clone(),
        }
    }

    /// Failpoint at which a process acted on itself: `name:nth`, with the action unless it is death.
    pub(crate) fn place(&self) -> &str {
        self.how.split('"').nth(1).unwrap_or_default()
    }

    /// Whether it kills a process or crashes the server. A process that fails or is delayed at a
    /// failpoint continues.
    pub(crate) fn is_deadly(&self) -> bool {
        match self.word.as_str() {
            "place" => self.place().split(':').count() == 2,
            "crash" => true,
            word => word.starts_with("kill"),
        }
    }
}

impl Operated {
    /// Whether a restore takes it back.
    pub(crate) fn is_forfeited(&self) -> bool {
        self.steps.iter().any(|it| matches!(it, Step::Forfeited))
    }

    /// How often its key was deleted, or has expired.
    pub(crate) fn purges(&self) -> usize {
        let purged = |it: &&Step| matches!(it, Step::Purged(_));
        self.steps.iter().filter(purged).count()
    }

    /// The responses, each with the shop that sent it and the time of the request.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&str, u64, &Value)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Asked { node, at, answer } if !answer.is_null() => {
                Some((node.as_str(), *at, answer))
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

impl Asked {
    fn of(line: &Value) -> Self {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        Self {
            at: line["at"].as_u64().unwrap_or_default(),
            id: text("id"),
            who: text("who"),
            retry_after: line["retry_after"].as_u64(),
        }
    }
}

impl Received {
    fn of(lines: &[Value]) -> Self {
        let mut received = Self::default();
        let mut places = HashMap::new();
        for line in lines {
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            let at = line["at"].as_u64().unwrap_or_default();
            match line["what"].as_str() {
                Some("arrived") => {
                    places.insert(line["n"].as_u64(), received.arrivals.len());
                    if let Some(said) = line["body"].as_str() {
                        let said = serde_json::from_str(said).unwrap_or_default();
                        received.said.insert(text("id"), said);
                    }
                    received.arrivals.push(Arrival {
                        at,
                        answered: None,
                        id: text("id"),
                        mood: text("mood"),
                        sha: text("sha"),
                        is_effect: line["effect"] == true,
                        retry_after: line["retry_after"].as_u64(),
                    });
                }
                Some("answered") => {
                    if let Some(place) = places.get(&line["n"].as_u64()) {
                        received.arrivals[*place].answered = Some(at);
                    }
                }
                Some("picked") => drop(received.picked.insert(text("id"))),
                Some("spurned") => drop(received.spurned.insert(text("id"))),
                Some("strayed") => received.strayed += 1,
                _ => received.refused.push(line.clone()),
            }
        }
        received
    }

    /// The mailbox records only that a mail arrived, under this name, and not its content.
    fn of_mails(mails: &[Value]) -> Self {
        let mut received = Self::default();
        for mail in mails {
            let text = |name: &str| mail[name].as_str().unwrap_or_default().to_owned();
            received.said.insert(text("id"), Value::Null);
            received.arrivals.push(Arrival {
                at: mail["at"].as_u64().unwrap_or_default(),
                answered: None,
                id: text("id"),
                mood: text("mood"),
                sha: String::new(),
                is_effect: mail["mood"] != "later",
                retry_after: None,
            });
        }
        received
    }
}

fn operated(ledger: &[Value]) -> anyhow::Result<Vec<Operated>> {
    let mut operated: Vec<Operated> = Vec::new();
    let mut places = HashMap::new();
    for line in ledger {
        let operation: Operation = serde_json::from_value(line["wish"].clone())?;
        let name = (operation.tenant.clone(), operation.key.clone());
        let place = *places.entry(name).or_insert_with(|| {
            operated.push(Operated {
                operation,
                steps: Vec::new(),
            });
            operated.len() - 1
        });
        let at = line["at"].as_u64().unwrap_or_default();
        operated[place].steps.push(match line["what"].as_str() {
            Some("forfeited") => Step::Forfeited,
            Some("purged" | "expired") => Step::Purged(at),
            _ => Step::Asked {
                node: line["node"].as_str().unwrap_or_default().to_owned(),
                at,
                answer: line["answer"].clone(),
            },
        });
    }
    Ok(operated)
}

/// Acknowledged operations of the clients in this folder so far, in the order of their numbers.
pub(crate) fn granted(folder: &Path) -> anyhow::Result<Vec<Wished>> {
    let lines = |name: &str| lines::read_all(&folder.join(name));
    let mut operations = operations(&[lines("clients-0.jsonl")?, lines("clients-1.jsonl")?])?;
    operations.retain(|it| it.granted().is_some());
    operations.sort_by_key(|it| it.lasting().and_then(|it| it.ended));
    Ok(operations)
}

/// The body of an answer; null where it is no JSON.
pub(crate) fn body(answer: &Value) -> Value {
    let text = answer["body"].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
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

fn operations(histories: &[Vec<Value>]) -> anyhow::Result<Vec<Wished>> {
    let mut operations: Vec<Wished> = Vec::new();
    for history in histories {
        let mut places = HashMap::new();
        let mut attempts = HashMap::new();
        for line in history {
            let at = line["time"].as_u64().unwrap_or_default();
            let process = line["process"].as_u64();
            if line["type"] == "invoke" {
                let operation: Operation = serde_json::from_value(line["value"].clone())?;
                let name = (operation.tenant.clone(), operation.key.clone());
                let is_altered = line["altered"] == true;
                let place = *places.entry(name).or_insert_with(|| {
                    operations.push(Wished {
                        operation,
                        attempts: Vec::new(),
                    });
                    operations.len() - 1
                });
                attempts.insert(process, (place, operations[place].attempts.len()));
                operations[place].attempts.push(Attempt {
                    is_altered,
                    began: at,
                    ended: None,
                    end: "info".to_owned(),
                    answer: Value::Null,
                });
            } else if line["type"] != "memory"
                && let Some((place, attempt)) = attempts.get(&process)
            {
                let attempt = &mut operations[*place].attempts[*attempt];
                attempt.ended = Some(at);
                line["type"]
                    .as_str()
                    .unwrap_or_default()
                    .clone_into(&mut attempt.end);
                attempt.answer = line["value"].clone();
            }
        }
    }
    Ok(operations)
}
