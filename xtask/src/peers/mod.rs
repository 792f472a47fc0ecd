//! `cargo x peers`: probes public packages for idempotency keys, and writes the page with the
//! results.
//!
//! Each package of `proof/peers/peers.toml` is installed under the target directory, and runs in an
//! app that follows its documentation, which the program `hapax-probe` tests. A package that cannot
//! be installed, started or probed is listed with the error, and the task goes on with the next one.
//! `--only NAME` prints the page for one package and writes nothing.

mod manifest;
mod running;
mod install;
mod app;
mod report;
mod page;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};

use self::{
    app::App,
    manifest::{Manifest, Peer},
    page::{Origin, Tested},
    report::{Report, Verdict},
    running::Running,
};
use crate::{
    packages,
    tool::{self, Tool},
};

const MANIFEST: &str = "proof/peers/peers.toml";
const PAGE: &str = "docs/explanation/peers.md";
/// The folder of Python packages, in that of an app.
const PACKAGES: &str = "packages";
const TOOLS: &[Tool] = &[
    Tool::new("curl --version", "apt-get install curl"),
    Tool::new(
        "python3 -m pip --version",
        "apt-get install python3 python3-pip",
    ),
    Tool::new("node --version", "apt-get install nodejs"),
    Tool::new("npm --version", "apt-get install npm"),
];
/// The operation of every app.
const PATH: &str = "/orders";
const BODY: &str = "{\"amount\": {{n}}}";
const BUILD_LIMIT: Duration = Duration::from_mins(30);
const PROBE_LIMIT: Duration = Duration::from_mins(10);
const QUESTION_LIMIT: Duration = Duration::from_secs(20);

/// The folders of a run.
#[derive(Debug)]
struct Folders {
    /// The root of the project.
    root: PathBuf,
    /// Where packages are installed, with a folder for each of them, and what programs print.
    target: PathBuf,
    /// The program that probes.
    probe: PathBuf,
}

impl Folders {
    /// The app of a package.
    fn sources(&self, peer: &Peer) -> PathBuf {
        self.root.join("proof/peers").join(&peer.name)
    }

    /// Where a package is installed, and where its app runs.
    fn installed(&self, peer: &Peer) -> PathBuf {
        self.target.join(&peer.name)
    }

    /// A file about a package.
    fn file(&self, peer: &Peer, end: &str) -> PathBuf {
        self.target.join(format!("{}.{end}", peer.name))
    }
}

/// Probes every package and writes the page; with `--only NAME`, prints the page for one package.
pub(crate) fn peers(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let manifest = Manifest::read(&root.join(MANIFEST))?;
    let only = match arguments {
        [] => None,
        [flag, name] if flag == "--only" => Some(name),
        _ => bail!("`cargo x peers` takes no arguments except --only NAME"),
    };
    let chosen: Vec<Peer> = manifest
        .peers
        .iter()
        .filter(|peer| only.is_none_or(|name| peer.name == *name))
        .cloned()
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = manifest.peers.iter().map(|it| it.name.as_str()).collect();
        bail!("--only: expected one of {}", names.join(", "));
    }
    tool::require(TOOLS)?;
    let build = packages::target()?;
    let folders = Folders {
        root: root.to_owned(),
        target: build.join("peers"),
        probe: build.join("release/hapax-probe"),
    };
    fs::create_dir_all(&folders.target)
        .with_context(|| format!("cannot create {}", folders.target.display()))?;
    build_probe(&folders)?;
    let origin = origin(&folders)?;
    let tested: Vec<Tested> = chosen.into_iter().map(|it| test(&folders, it)).collect();
    let page = page::render(&tested, &origin);
    if only.is_some() {
        println!("\n{page}");
        return Ok(());
    }
    fs::write(root.join(PAGE), page).with_context(|| format!("cannot write {PAGE}"))?;
    println!("    written: {PAGE}");
    Ok(())
}

fn build_probe(folders: &Folders) -> anyhow::Result<()> {
    println!("    building hapax-probe");
    let mut cargo = running::command("cargo");
    cargo
        .args(["build", "--quiet", "--release", "--locked"])
        .args(["--package", "hapax-probe"]);
    let output = folders.target.join("probe.build.log");
    running::succeed("cargo build", cargo, &output, BUILD_LIMIT)?;
    Ok(())
}

/// Tests one package, and prints the result.
fn test(folders: &Folders, peer: Peer) -> Tested {
    println!("    {} {}", peer.package, peer.version);
    let outcome = probed(folders, &peer).map_err(|error| {
        let error = format!("{error:#}");
        let line = error.lines().next().unwrap_or_default();
        // A path of this machine says nothing on another one.
        let target = folders.target.display().to_string();
        line.replace(&target, "target/peers")
            .replace(&folders.root.display().to_string(), ".")
    });
    match &outcome {
        Ok(report) => println!(
            "        {} PASS, {} FAIL, {} UNKNOWN",
            report.count(Verdict::Pass),
            report.count(Verdict::Fail),
            report.count(Verdict::Unknown)
        ),
        Err(error) => println!("        {error}"),
    }
    Tested { peer, outcome }
}

/// Installs a package, starts its app and probes it.
fn probed(folders: &Folders, peer: &Peer) -> anyhow::Result<Report> {
    install::install(folders, peer)?;
    let app = App::start(folders, peer)?;
    let cookie = app.session(folders, peer)?;
    let path = folders.file(peer, "report.json");
    if path.exists() {
        fs::remove_file(&path).context("cannot remove the previous report")?;
    }
    let mut probe = running::command(&folders.probe.to_string_lossy());
    probe
        .args(plan(&app.url(PATH), cookie.as_deref()))
        .arg("--output")
        .arg(&path);
    let output = folders.file(peer, "probe.log");
    let mut running = Running::start("hapax-probe", probe, &output)?;
    let status = running.wait(PROBE_LIMIT)?;
    // The status says whether all checks passed, so only a missing report is a failure.
    match fs::read_to_string(&path) {
        Ok(text) => Report::parse(&text),
        Err(_) => Err(running.failed(status)),
    }
}

/// The arguments of the probe.
fn plan(url: &str, cookie: Option<&str>) -> Vec<String> {
    let mut plan: Vec<String> = [
        url,
        "--profile",
        "ietf",
        "--body-text",
        BODY,
        "--vary",
        "/amount",
        "--count-url",
        url,
        "--count-path",
        "$[*].id",
        "--seed",
        "1",
        "--report",
        "json",
    ]
    .map(str::to_owned)
    .into();
    if let Some(cookie) = cookie {
        plan.extend(["--header".to_owned(), format!("Cookie: {cookie}")]);
    }
    plan
}

/// When and with which programs the packages are probed.
fn origin(folders: &Folders) -> anyhow::Result<Origin> {
    let output = folders.target.join("tools.log");
    let ask = |program: &str, argument: &str| -> anyhow::Result<String> {
        let mut command = running::command(program);
        command.arg(argument);
        let said = running::succeed(program, command, &output, QUESTION_LIMIT)?;
        Ok(said.lines().next().unwrap_or_default().trim().to_owned())
    };
    Ok(Origin {
        date: ask("date", "+%Y-%m-%d")?,
        tools: vec![
            ask(&folders.probe.to_string_lossy(), "--version")?,
            format!("Node {}", ask("node", "--version")?),
            ask("python3", "--version")?,
            ask("rustc", "--version")?,
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_counts_orders_and_sends_the_cookie_of_a_session() {
        let plain = plan("http://127.0.0.1:1/orders", None);
        let counts = ["--count-url", "http://127.0.0.1:1/orders", "--count-path"];
        assert!(plain.windows(3).any(|it| it == counts), "{plain:?}");
        assert!(!plain.iter().any(|it| it == "--header"), "{plain:?}");
        let with_session = plan("http://127.0.0.1:1/orders", Some("session=a"));
        assert_eq!(
            with_session[plain.len()..],
            ["--header", "Cookie: session=a"]
        );
    }

    #[test]
    fn arguments_that_are_not_known_are_refused_before_anything_is_built() {
        #[track_caller]
        fn check(root: &Path, arguments: &[&str], expected: &str) {
            let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
            let error = peers(root, &arguments).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        check(root, &["--only"], "takes no arguments except --only NAME");
        check(
            root,
            &["--only", "none"],
            "--only: expected one of node-idempotency, ",
        );
    }
}
