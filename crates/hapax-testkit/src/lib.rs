//! Conformance suites for stores and sinks, and fixtures for tests: servers, receivers, programs,
//! clocks.
//!
//! A store has to pass [`store_suite!`], what it offers operators [`admin_suite!`], and a sink
//! [`sink_suite!`]. The requirements are written once against the traits of [`hapax`]. A crate names its type, and every requirement
//! becomes a test whose name is a sentence. So all stores behave alike, and a failing test names
//! the violated requirement.
//!
//! # A new store
//!
//! Implement [`store::StoreUnderTest`] in the tests of its crate, and call the suite:
//!
//! ```
//! use hapax::{Clock, Random};
//! use hapax_sqlite::{Settings, Sqlite, Statement, Tx};
//! use hapax_testkit::store::{Images, StoreUnderTest};
//!
//! const INSERT: &str = "INSERT INTO business (value) VALUES (?1)";
//!
//! struct Embedded {
//!     store: Sqlite,
//!     settings: Settings,
//!     directory: tempfile::TempDir,
//! }
//!
//! impl StoreUnderTest for Embedded {
//!     type Store = Sqlite;
//!
//!     async fn fresh(clock: Clock, random: Random) -> Self {
//!         let directory = tempfile::tempdir().unwrap();
//!         let settings = Settings::new(directory.path().join("law.db"), clock, random);
//!         let store = Sqlite::open(settings.clone()).unwrap();
//!         let table = (1, "business", "CREATE TABLE business (value TEXT NOT NULL)");
//!         store.migrate("law", &[table]).await.unwrap();
//!         Self { store, settings, directory }
//!     }
//!
//!     async fn reopen(mut self) -> Self {
//!         self.store.close().await.unwrap();
//!         self.store = Sqlite::open(self.settings.clone()).unwrap();
//!         self
//!     }
//!
//!     fn store(&self) -> &Sqlite {
//!         &self.store
//!     }
//!
//!     async fn write_row(tx: &mut Tx, value: &str) {
//!         let value = value.to_owned();
//!         tx.with(move |conn| conn.execute(INSERT, [value])).await.unwrap();
//!     }
//!
//!     fn row_statement(value: &str) -> Statement {
//!         Statement::new(INSERT, [value.to_owned().into()])
//!     }
//!
//!     fn failing_statement() -> Statement {
//!         Statement::new("INSERT INTO business (value) VALUES (NULL)", [])
//!     }
//!
//!     async fn rows(&self) -> Vec<String> {
//!         let rows = self.store.read(|conn| {
//!             let mut select = conn.prepare("SELECT value FROM business")?;
//!             select.query_map([], |row| row.get(0))?.collect()
//!         });
//!         rows.await.unwrap()
//!     }
//! }
//!
//! impl Images for Embedded {
//!     async fn keep_image(&self) {
//!         # unimplemented!("copy the database, and in set_back restore the copy over it")
//!         // ...
//!     }
//!
//!     async fn set_back(&self) {
//!         # unimplemented!()
//!         // ...
//!     }
//! }
//!
//! hapax_testkit::store_suite!(Embedded);
//! # fn main() {}
//! ```
//!
//! Each test gets a fresh store, a [`clock::ManualClock`] and a runtime with several threads.
//! Nothing else is needed: the tests know no SQL dialect, no file and no driver.
//!
//! # A new sink
//!
//! Start the real receiver, such as an [`http::HttpReceiver`] or a [`smtp::SmtpReceiver`];
//! implement [`sink::SinkUnderTest`], which makes the receiver fail, and call the suite:
//!
//! ```
//! use std::sync::Arc;
//! use hapax::sink::Sink;
//! use hapax_testkit::{
//!     http::{HttpReceiver, HttpReply},
//!     sink::{Arrival, Mood, SinkUnderTest},
//! };
//!
//! # fn sink_to(url: &str) -> Arc<dyn Sink> { unimplemented!("{url}") }
//! struct Webhook {
//!     receiver: HttpReceiver,
//!     sink: Arc<dyn Sink>,
//! }
//!
//! impl SinkUnderTest for Webhook {
//!     async fn fresh() -> Self {
//!         let receiver = HttpReceiver::start().await;
//!         let sink = sink_to(&receiver.url("/hook"));
//!         Self { receiver, sink }
//!     }
//!
//!     fn sink(&self) -> Arc<dyn Sink> {
//!         Arc::clone(&self.sink)
//!     }
//!
//!     async fn tell(&self, mood: Mood) -> bool {
//!         let status = match mood {
//!             Mood::Accept => 200,
//!             Mood::Fail => 503,
//!             Mood::Gone => 410,
//!             _ => return false,
//!         };
//!         self.receiver.reply(HttpReply::status(status));
//!         true
//!     }
//!
//!     async fn arrivals(&self) -> Vec<Arrival> {
//!         let received = self.receiver.received().into_iter();
//!         let taken = received.filter(|request| request.answered == Some(200));
//!         taken
//!             .map(|request| Arrival {
//!                 id: request.header("webhook-id").unwrap_or_default().to_owned(),
//!                 payload: Some(request.body),
//!             })
//!             .collect()
//!     }
//! }
//!
//! hapax_testkit::sink_suite!(Webhook);
//! # fn main() {}
//! ```
//!
//! # A new requirement
//!
//! Write it as a function in the file of its topic, and add its name to the list in the suite's
//! `mod.rs` (a test compares the two). Then break a store on purpose and check that the test fails.

pub mod store;
pub mod admin;
pub mod source;
pub mod sink;
pub mod conformance;
pub mod both_stores;
pub mod http;
pub mod smtp;
pub mod certify;
mod guard;
pub mod program;
pub mod relay;
pub mod servers;
pub mod moto;
pub mod drongo;
pub mod postgres;
pub mod power;
pub mod machine_faults;
pub mod proxy;
pub mod events;
pub mod application;
pub mod clock;
pub mod wait;
mod matches;
pub mod port;
pub mod name;
pub mod vectors;
pub mod prober;
pub mod browser;
