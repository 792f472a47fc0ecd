//! Starts the reference services.

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

/// A response of the shop, recorded for the reference services.
#[derive(Debug)]
pub(super) struct Recorded {
    file: PathBuf,
    /// Its size in bytes, head and body.
    pub(super) size: usize,
}

impl Recorded {
    /// Posts an order twice and records the replay as it was received.
    pub(super) async fn replay(address: SocketAddr, folder: &Folder) -> anyhow::Result<Self> {
        let request = Request::post("/orders", TOKEN, crate::ORDER, 0);
        let mut connection = Connection::open(address).await?;
        connection.exchange(request.bytes()).await?;
        let head = connection.exchange(request.bytes()).await?;
        ensure!(
            head.status == 201 && head.replayed,
            "the second response is not a replay: {head:?}"
        );
        let bytes = [connection.head(), connection.body()].concat();
        let file = folder.path().join("answer");
        std::fs::write(&file, &bytes)?;
        Ok(Self {
            file,
            size: bytes.len(),
        })
    }

    /// A response as a service sends it that knows nothing of keys.
    pub(super) fn plain(folder: &Folder) -> anyhow::Result<Self> {
        let body = crate::ORDER;
        let text = format!(
            "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let file = folder.path().join("answer");
        std::fs::write(&file, &text)?;
        Ok(Self {
            file,
            size: text.len(),
        })
    }

    /// Starts a shop and records its replay.
    pub(super) async fn of(bench: &Bench, folder: &Folder) -> anyhow::Result<Self> {
        let place = Folder::make(folder.path(), "recorded")?;
        let shop = Shop::bare(bench, Store::Sqlite, place, &[]).await?;
        Self::replay(shop.address(), folder).await
    }
}

/// Starts the reference service of `arguments`, with its database in `folder`.
pub(super) async fn start(
    answer: &Recorded,
    folder: &Folder,
    arguments: &[&str],
) -> anyhow::Result<Service> {
    let mut arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
    if arguments != ["constant"] {
        // Free ports are unique, so the name is too.
        let name = format!("{}.db", free_address()?.port());
        let database = folder.path().join(name);
        arguments.extend(["--database".into(), database.into()]);
    }
    serve(answer, folder.path(), &arguments).await
}

/// Starts the reference service of `arguments`.
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
