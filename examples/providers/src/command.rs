//! What both programs do: read two flags, open the ledger, say where they listen, serve.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use axum::Router;
use clap::Parser;
use tokio::{
    net::TcpListener,
    runtime,
    signal::unix::{SignalKind, signal},
};

use crate::server;

/// Where a provider listens, and what it remembers.
#[derive(Debug, Parser)]
#[command(version)]
struct Flags {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The ledger, a file of JSON Lines; made when missing
    #[arg(long, value_name = "FILE")]
    ledger: PathBuf,
}

/// Serves what `open` makes of the ledger until SIGTERM or SIGINT.
pub fn run(name: &str, open: fn(&Path) -> io::Result<Router>) -> ExitCode {
    let flags = Flags::parse();
    match start(&flags, open) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _unread = writeln!(io::stderr(), "{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(flags: &Flags, open: fn(&Path) -> io::Result<Router>) -> io::Result<()> {
    let router = open(&flags.ledger)?;
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(flags.listen).await?;
        let (mut terminated, mut interrupted) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "listening on http://{}", listener.local_addr()?)?;
        stdout.flush()?;
        drop(stdout);
        server::serve(listener, router, async move {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
        })
        .await;
        Ok(())
    })
}
