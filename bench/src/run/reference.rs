//! How the services are started that the shop is held against.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;

use crate::load::{Connection, Request};

use super::{
    Bench, Store,
    folder::Folder,
    service::{Service, free_address},
    shop::{Shop, TOKEN},
};

/// An answer of the shop, kept for the references to give.
#[derive(Debug)]
pub(super) struct Recorded {
    file: PathBuf,
    /// Its bytes, head and body.
    pub(super) size: usize,
}

impl Recorded {
    /// Posts an order twice and keeps the replay as it came over the wire.
    pub(super) async fn replay(address: SocketAddr, folder: &Folder) -> anyhow::Result<Self> {
        let request = Request::post("/orders", TOKEN, crate::ORDER, 0);
        let mut connection = Connection::open(address).await?;
        connection.exchange(request.bytes()).await?;
        let head = connection.exchange(request.bytes()).await?;
        ensure!(
            head.status == 201 && head.replayed,
            "the second answer is no replay: {head:?}"
        );
        let bytes = [connection.head(), connection.body()].concat();
        let file = folder.path().join("answer");
        std::fs::write(&file, &bytes)?;
        Ok(Self {
            file,
            size: bytes.len(),
        })
    }

    /// The same, of a shop that is started for it.
    pub(super) async fn of(bench: &Bench, folder: &Folder) -> anyhow::Result<Self> {
        let place = Folder::make(folder.path(), "recorded")?;
        let shop = Shop::bare(bench, Store::Sqlite, place, &[]).await?;
        Self::replay(shop.address(), folder).await
    }
}

/// Starts the reference that `arguments` name; what it keeps is in `folder`.
pub(super) async fn start(
    answer: &Recorded,
    folder: &Folder,
    arguments: &[&str],
) -> anyhow::Result<Service> {
    let mut arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
    if arguments != ["constant"] {
        // A port is given to one at a time, so the name is not taken.
        let name = format!("{}.db", free_address()?.port());
        let database = folder.path().join(name);
        arguments.extend(["--database".into(), database.into()]);
    }
    serve(answer, folder.path(), &arguments).await
}

/// Starts the reference that `arguments` name, whatever it stands on.
pub(super) async fn serve(
    answer: &Recorded,
    folder: &Path,
    arguments: &[OsString],
) -> anyhow::Result<Service> {
    let address = free_address()?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["serve", "--listen", &address.to_string(), "--answer"])
        .arg(&answer.file)
        .args(arguments);
    Service::start(command, address, &folder.join("reference.log")).await
}
