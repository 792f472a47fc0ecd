//! Remote processes: receivers, the mailbox, providers and the broker, which keep ledgers.

use std::path::PathBuf;

use anyhow::Context as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{Binaries, Deployment, Program};

/// Secret that signs every webhook.
pub(crate) const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The mailbox, the overloaded receiver and the broker, as the log of the nemesis names them.
pub(crate) const MAILBOX: &str = "Remote(2)";
pub(crate) const COUNTER: &str = "Remote(5)";
pub(crate) const BROKER: &str = "Remote(6)";

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
        programs.push(oracle("stream", "stream_reader.py", port, &[]));
    }
    Ok(programs)
}

/// A Redis that responds after it has flushed an event to disk.
fn broker(deployment: &Deployment, port: u16) -> anyhow::Result<Program> {
    let home = deployment.folder.join("broker");
    std::fs::create_dir_all(&home)?;
    let (port, home) = (port.to_string(), home.display().to_string());
    let arguments = ["--bind", "127.0.0.1", "--port", &port, "--dir", &home];
    let durability = [
        "--save",
        "",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ];
    let arguments = arguments.iter().chain(&durability).map(|&it| it.to_owned());
    let server = "redis-server".as_ref();
    Ok(Program::new(
        "broker",
        &deployment.folder,
        server,
        arguments.collect(),
    ))
}

/// Makes the receivers, the mailbox and the overloaded receiver stop injecting faults.
pub(super) async fn stop_faults(deployment: &Deployment) -> anyhow::Result<()> {
    for port in deployment
        .ports
        .receivers
        .iter()
        .chain([&deployment.ports.counter])
    {
        let url = format!("http://127.0.0.1:{port}/normal");
        let outcome = deployment.http.get(&url).await;
        outcome
            .map_err(|error| anyhow::anyhow!("cannot change the mode of a receiver: {error}"))?;
    }
    let mut mailbox = TcpStream::connect(("127.0.0.1", deployment.ports.mailbox)).await?;
    mailbox.write_all(b"NORMAL\r\nQUIT\r\n").await?;
    mailbox.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

/// The folder of the Python packages with which the receivers verify signatures.
fn packages() -> anyhow::Result<String> {
    let this = std::env::current_exe()?;
    let mut folders = this.ancestors().map(|it| it.join("oracles"));
    let found = folders.find(|it| it.join("standardwebhooks").is_dir());
    let found =
        found.context("the Python packages of the receivers are missing: run `cargo x torture`")?;
    Ok(found.display().to_string())
}
