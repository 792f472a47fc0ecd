//! Receivers and providers: processes that keep ledgers.

use std::path::PathBuf;

use anyhow::Context as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{Binaries, Deployment, Program};

/// Secret that signs every webhook.
pub(crate) const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The mailbox, as a fault names it, the overloaded one, and the broker.
pub(crate) const MAILBOX: &str = "Far(2)";
pub(crate) const COUNTER: &str = "Far(5)";
pub(crate) const BROKER: &str = "Far(6)";

/// Two receivers, a mailbox, two providers and an overloaded receiver; also a broker and its reader
/// if a destination uses the broker.
pub(super) fn programs(
    deployment: &Deployment,
    binaries: &Binaries,
    seed: u64,
) -> anyhow::Result<Vec<Program>> {
    let folder = &deployment.folder;
    let oracle = |name: &str, file: &str, port: u16, more: &[&str]| {
        let ledger = folder.join(format!("{name}.jsonl"));
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("oracles")
            .join(file);
        let mut arguments = vec![script.display().to_string()];
        arguments.extend(["--port".to_owned(), port.to_string()]);
        arguments.extend(["--ledger".to_owned(), ledger.display().to_string()]);
        arguments.extend(["--seed".to_owned(), (seed % 1_000_003).to_string()]);
        arguments.extend(more.iter().map(|&it| it.to_owned()));
        Program::new(name, folder, "python3".as_ref(), arguments)
    };
    let packages = packages()?;
    let secret = ["--secret", WEBHOOK_SECRET];
    let provider = |name: &str, binary: &str, port: u16| {
        let ledger = folder.join(format!("{name}.jsonl")).display().to_string();
        let arguments = [
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--ledger",
            &ledger,
        ];
        let arguments = arguments.map(str::to_owned).into();
        Program::new(name, folder, &binaries.path(binary), arguments)
    };
    let ports = &deployment.ports;
    let receivers = ports.receivers.iter().zip(["hook", "feed"]);
    let receivers = receivers.map(|(port, name)| {
        oracle(name, "receiver.py", *port, &secret).with("PYTHONPATH", &packages)
    });
    let mut programs: Vec<_> = receivers.collect();
    programs.push(oracle("mail", "mailbox.py", ports.mailbox, &[]));
    programs.push(provider("payment", "payment-provider", ports.payment));
    programs.push(provider("shipping", "shipping-provider", ports.shipping));
    programs.push(oracle("counter", "counter.py", ports.counter, &[]));
    if let Some(port) = ports.broker {
        programs.push(broker(deployment, port)?);
        programs.push(oracle("stream", "taker.py", port, &[]));
    }
    Ok(programs)
}

/// A Redis that answers when the disk has it.
fn broker(deployment: &Deployment, port: u16) -> anyhow::Result<Program> {
    let home = deployment.folder.join("broker");
    std::fs::create_dir_all(&home)?;
    let (port, home) = (port.to_string(), home.display().to_string());
    let words = ["--bind", "127.0.0.1", "--port", &port, "--dir", &home];
    let keeps = [
        "--save",
        "",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ];
    let arguments = words.iter().chain(&keeps).map(|&it| it.to_owned());
    let server = "redis-server".as_ref();
    Ok(Program::new(
        "broker",
        &deployment.folder,
        server,
        arguments.collect(),
    ))
}

/// Tells the receivers, the mailbox and the overloaded one to be kind from now on.
pub(super) async fn be_kind(deployment: &Deployment) -> anyhow::Result<()> {
    for port in deployment
        .ports
        .receivers
        .iter()
        .chain([&deployment.ports.counter])
    {
        let url = format!("http://127.0.0.1:{port}/kind");
        let outcome = deployment.http.get(&url).await;
        outcome
            .map_err(|error| anyhow::anyhow!("cannot change the mode of a receiver: {error}"))?;
    }
    let mut mailbox = TcpStream::connect(("127.0.0.1", deployment.ports.mailbox)).await?;
    mailbox.write_all(b"KIND\r\nQUIT\r\n").await?;
    mailbox.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

/// Where the packages are that the receivers verify with.
fn packages() -> anyhow::Result<String> {
    let this = std::env::current_exe()?;
    let mut folders = this.ancestors().map(|it| it.join("oracles"));
    let found = folders.find(|it| it.join("standardwebhooks").is_dir());
    let found = found.context("the oracles' packages are missing: run `cargo x torture`")?;
    Ok(found.display().to_string())
}
