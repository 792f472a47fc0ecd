//! The demo's external systems, which run in the process of the shop.
//!
//! They are a webhook receiver, a mail catcher and two providers. Each has its own port, and its
//! files are in the data directory. If several instances of the shop share a database, each
//! instance still has its own demo.

pub(crate) mod mail_catcher;
pub(crate) mod receiver;
mod simulators;

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use hapax::{
    Clock, Random,
    request_log::RequestLog,
    signature::{Signer, Verifier},
};
use hapax_sqlite::Sqlite;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    config::Providers,
    database::sqlite,
    files, secrets,
    server::{self, Stop},
};
use receiver::Receiver;
use simulators::Simulators;

/// The demo's external systems, ready to serve.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) store: Sqlite,
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) hooks: TcpListener,
    pub(crate) mail: TcpListener,
    /// The folder of caught mail.
    pub(crate) folder: PathBuf,
    pub(crate) signer: Signer,
    pub(crate) simulators: Simulators,
}

impl Parts {
    /// Opens all systems, with their files in `folder`.
    pub(crate) async fn open(
        folder: &Path,
        clock: Clock,
        random: Random,
        given: &Providers,
        log: RequestLog,
    ) -> anyhow::Result<Self> {
        let mails = folder.join("mail");
        files::make_folder(&mails)
            .with_context(|| format!("mail folder {} cannot be created", mails.display()))?;
        // The receiver is an external system, so it gets no failpoints: they count only the shop's
        // commits.
        let settings =
            hapax_sqlite::Settings::new(folder.join("receiver.db"), clock.clone(), random);
        let store = sqlite::open(settings, "receiver", receiver::MIGRATIONS).await?;
        let loopback = (Ipv4Addr::LOCALHOST, 0);
        let secret = secrets::make().context("cannot read random bytes for a secret")?;
        let verifier = Verifier::V1(secret.clone());
        Ok(Self {
            receiver: Arc::new(Receiver::new(store.clone(), clock, verifier, log)),
            store,
            hooks: TcpListener::bind(loopback)
                .await
                .context("cannot listen for the demo's receiver")?,
            mail: TcpListener::bind(loopback)
                .await
                .context("cannot listen for the mail catcher")?,
            folder: mails,
            signer: Signer::V1(secret),
            simulators: Simulators::open(&folder.join("providers"), given).await?,
        })
    }

    /// Serves all systems until `stop` is set.
    pub(crate) fn serve(self, stop: Stop) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let hooks = self.receiver.router();
        tasks.spawn(server::serve(self.hooks, hooks, stop.clone()));
        self.simulators.serve(&mut tasks, &stop);
        tasks.spawn(mail_catcher::serve(self.mail, self.folder, stop));
        tasks
    }
}
