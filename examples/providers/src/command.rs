//! The command line of both programs: reads the flags, opens the ledger, prints the address and
//! serves.

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

/// The flags of a provider.
#[derive(Debug, Parser)]
#[command(version)]
struct Flags {
    /// Address to listen on; port 0 takes a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Ledger file (JSON Lines); created if it does not exist
    #[arg(long, value_name = "FILE")]
    ledger: PathBuf,
}

/// Serves the router that `open` returns for the ledger, until SIGTERM or SIGINT.
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
