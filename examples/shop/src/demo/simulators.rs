//! The demo's own providers, each on its own port.
//!
//! They run the same code as the separate provider programs. Their ledgers are in `providers` in the
//! data directory, so charges survive a restart of the shop, as they would at a real provider.

use std::path::Path;

use anyhow::Context as _;
use axum::Router;
use http::Uri;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    config::Providers,
    server::{Stop, stopped},
};

/// The simulators of the providers whose URLs are not configured.
#[derive(Debug)]
pub(crate) struct Simulators {
    payment: Option<Simulator>,
    shipping: Option<Simulator>,
}

#[derive(Debug)]
struct Simulator {
    listener: TcpListener,
    router: Router,
}

impl Simulators {
    /// Opens the providers that `given` does not name, with their ledgers in `folder`.
    pub(crate) async fn open(folder: &Path, given: &Providers) -> anyhow::Result<Self> {
        let open = async |name: &str, open: fn(&Path) -> std::io::Result<Router>| {
            let ledger = folder.join(format!("{name}.jsonl"));
            let shown = ledger.display();
            let router = open(&ledger).with_context(|| format!("ledger {shown} cannot be used"))?;
            let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await;
            let listener = listener.with_context(|| format!("no port for {name} provider"))?;
            anyhow::Ok(Simulator { listener, router })
        };
        Ok(Self {
            payment: match given.payment {
                Some(_) => None,
                None => Some(open("payment", ::providers::payment).await?),
            },
            shipping: match given.shipping {
                Some(_) => None,
                None => Some(open("shipping", ::providers::shipping).await?),
            },
        })
    }

    /// Returns the URLs of the simulators.
    pub(crate) fn places(&self) -> anyhow::Result<Providers> {
        let place = |simulator: &Option<Simulator>| match simulator {
            None => Ok(None),
            Some(it) => {
                let address = it.listener.local_addr()?;
                let place: Uri = format!("http://{address}").parse()?;
                anyhow::Ok(Some(place))
            }
        };
        Ok(Providers {
            payment: place(&self.payment)?,
            shipping: place(&self.shipping)?,
        })
    }

    /// Serves the simulators until `stop` is set.
    pub(crate) fn serve(self, tasks: &mut JoinSet<()>, stop: &Stop) {
        for Simulator { listener, router } in [self.payment, self.shipping].into_iter().flatten() {
            let mut stop = stop.clone();
            tasks.spawn(async move {
                ::providers::serve(listener, router, stopped(&mut stop)).await;
            });
        }
    }
}
