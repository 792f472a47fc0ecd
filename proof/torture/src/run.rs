//! One run: a deployment, its faults, the time to settle, and the checks.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    artifacts::Artifacts,
    checkers::violations,
    conflict::{self, Conflict},
    deployment::{Binaries, Deployment, RETENTION, Store},
    lines::{self, now, rfc3339},
    mutants,
    nemesis::{Injections, Nemesis, exhaustive},
    report::{self, Verdict, print},
    settle::settle,
    stored_rows,
};

/// Arguments of a run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// Which store the rows are in
    #[arg(long, value_enum, default_value = "sqlite")]
    pub(crate) store: Store,
    /// Duration of the faults, in seconds
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Seed of the random choices [default: another one each time]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Goes through every failpoint instead of random faults
    #[arg(long)]
    pub(crate) exhaustive: bool,
    /// Also hits each failpoint while a shop recovers from another one
    #[arg(long, requires = "exhaustive")]
    pub(crate) pairs: bool,
    /// Use only these kinds of faults, such as `kill,pause`
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Use only these injections of the seed, such as `3,7-9`
    #[arg(long, conflicts_with = "exhaustive")]
    pub(crate) injections: Option<Injections>,
    /// Folder with the programs of another release: shops and relays change to it and back
    #[arg(long, value_name = "FOLDER")]
    pub(crate) previous: Option<PathBuf>,
    /// Activates this seeded bug, in a build that contains them
    #[arg(long)]
    pub(crate) bug: Option<String>,
    /// Where the files of the run go [default: target/torture/STORE-SEED]
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
}

/// Arguments of a check.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Check {
    /// The folder of a run
    folder: PathBuf,
}

/// Settings of a run, apart from its faults.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) store: Store,
    pub(crate) seed: u64,
    pub(crate) folder: PathBuf,
    /// The programs of another release, to which shops and relays change and back.
    pub(crate) previous: Option<PathBuf>,
    pub(crate) bug: Option<String>,
    /// The command that repeats the run.
    pub(crate) command: String,
    /// What must have happened in it; `None` stands for everything that a random run does.
    pub(crate) gates: Option<Vec<String>>,
}

/// Runs the cluster under random faults, and checks the result.
pub(crate) async fn run(flags: Flags) -> anyhow::Result<Verdict> {
    if let Some(bug) = &flags.bug {
        mutants::check_planted(bug)?;
    }
    let seed = seed(flags.seed);
    let name = format!("{}-{seed}", flags.store.name());
    let setup = Setup {
        store: flags.store,
        seed,
        folder: fresh(flags.folder.as_deref(), &name)?,
        previous: flags.previous.clone(),
        bug: flags.bug.clone(),
        command: command(&flags, seed),
        gates: None,
    };
    let deployment = deploy(&setup).await?;
    play(&setup, deployment, async |nemesis| {
        inject(nemesis, &flags).await
    })
    .await
}

/// Builds the deployment of a run.
pub(crate) async fn deploy(setup: &Setup) -> anyhow::Result<Deployment> {
    print(&format!(
        "seed {}, in {}",
        setup.seed,
        setup.folder.display()
    ));
    let (binaries, bug) = (Binaries::beside()?, setup.bug.as_deref());
    // A scenario is short: every event is still there in the end.
    let retention = setup.gates.is_none().then_some(RETENTION);
    let Setup {
        store,
        folder,
        seed,
        ..
    } = setup;
    let built = Deployment::build(*store, folder, &binaries, *seed, bug, retention);
    let mut deployment = built.await?;
    if let Some(previous) = &setup.previous {
        deployment.has_another_release(previous)?;
    }
    Ok(deployment)
}

/// Injects faults into a deployment, waits until it has settled, and checks it.
pub(crate) async fn play(
    setup: &Setup,
    deployment: Deployment,
    faults: impl AsyncFnOnce(&mut Nemesis) -> anyhow::Result<()>,
) -> anyhow::Result<Verdict> {
    let folder = &setup.folder;
    let mut nemesis = Nemesis::new(deployment, Binaries::beside()?, setup.seed)?;
    let began = now();
    let injected = Box::pin(faults(&mut nemesis)).await;
    let settled = match injected {
        Ok(()) => Box::pin(settle(&mut nemesis, setup.gates.is_some())).await,
        Err(error) => Err(error),
    };
    let (quiet_from, drained) = settled.with_context(|| format!("seed {}", setup.seed))?;
    if let Some(server) = &nemesis.deployment.server {
        std::fs::write(folder.join("server.log"), server.cluster.log())?;
    }
    // Writes after the last fault are included.
    nemesis.measure().await?;
    let rows = stored_rows::all(&nemesis.deployment).await?;
    std::fs::write(folder.join("rows.json"), rows.to_string())?;
    let outcome = json!({
        "store": setup.store.name(), "seed": setup.seed,
        "seconds": (quiet_from - began) / 1_000_000_000, "began": began, "quiet_from": quiet_from,
        "drained_ms": u64::try_from(drained.as_millis())?, "previous": setup.previous.is_some(),
        "bug": setup.bug, "when": rfc3339(began)?, "machine": machine(), "command": setup.command,
        "gates": setup.gates,
    });
    std::fs::write(folder.join("run.json"), outcome.to_string())?;
    drop(nemesis);
    let folder = folder.clone();
    check(&Check { folder })
}

/// The given seed, or a new one each time.
pub(crate) fn seed(given: Option<u64>) -> u64 {
    given.unwrap_or_else(|| now() / 1_000 % 1_000_000_007)
}

/// An empty folder: the given one, or one with this name.
pub(crate) fn fresh(given: Option<&Path>, name: &str) -> anyhow::Result<PathBuf> {
    let usual = Path::new("target/torture").join(name);
    let folder = given.unwrap_or(&usual);
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    Ok(folder.canonicalize()?)
}

/// Runs the checkers on the artifacts in a folder.
pub(crate) fn check(check: &Check) -> anyhow::Result<Verdict> {
    let artifacts = Artifacts::read(&check.folder)?;
    let (verdict, page) = report::page(&artifacts);
    std::fs::write(check.folder.join("report.md"), &page)?;
    // The page shows some of each kind.
    let all = violations(&artifacts)
        .into_iter()
        .map(|it| format!("{it}\n"));
    std::fs::write(check.folder.join("violations.txt"), all.collect::<String>())?;
    history(&check.folder)?;
    print(&page);
    Ok(verdict)
}

async fn inject(nemesis: &mut Nemesis, flags: &Flags) -> anyhow::Result<()> {
    nemesis.deployment.begin().await?;
    if flags.exhaustive {
        let injections = exhaustive(flags.store, flags.pairs);
        return Box::pin(nemesis.inject_all(&injections)).await;
    }
    let time = Duration::from_secs(flags.seconds);
    Box::pin(nemesis.inject_random(time, &flags.only, flags.injections.as_ref())).await
}

/// Writes one history in Jepsen's format, ordered by time. The faults are operations of the process
/// `nemesis`, and each request of a conflict is a process.
fn history(folder: &Path) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for name in ["clients-0", "clients-1", "sql-client"] {
        for mut line in lines::read_all(&folder.join(format!("{name}.jsonl")))? {
            // The state that a process keeps across restarts is not an event.
            if line["type"] == "memory" {
                continue;
            }
            line["node"] = json!(name);
            all.push(line);
        }
    }
    for line in lines::read(&folder.join("faults.jsonl"))? {
        for (kind, at) in [("invoke", "from"), ("info", "until")] {
            all.push(json!({
                "type": kind, "process": "nemesis", "f": line["fault"], "value": line["injection"],
                "time": line[at],
            }));
        }
    }
    for line in lines::read(&folder.join(conflict::LEDGER))? {
        let conflict: Conflict = serde_json::from_value(line)?;
        all.extend(conflict.history());
    }
    all.sort_by_key(|line| line["time"].as_u64());
    let lines: Vec<_> = all.iter().map(Value::to_string).collect();
    std::fs::write(folder.join("history.jsonl"), lines.join("\n") + "\n")?;
    Ok(())
}

fn machine() -> String {
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map(|it| it.trim_start_matches([' ', '\t', ':']).to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{} ({cores} cores)",
        model.unwrap_or_else(|| "unknown".to_owned())
    )
}

fn command(flags: &Flags, seed: u64) -> String {
    let mut words = vec!["cargo x torture".to_owned()];
    words.push(format!("--store {} --seed {seed}", flags.store.name()));
    match (flags.exhaustive, flags.pairs) {
        (false, _) => words.push(format!("--seconds {}", flags.seconds)),
        (true, false) => words.push("--exhaustive".to_owned()),
        (true, true) => words.push("--exhaustive --pairs".to_owned()),
    }
    if !flags.only.is_empty() {
        words.push(format!("--only '{}'", flags.only.join(",")));
    }
    words.extend(
        flags
            .injections
            .iter()
            .map(|injections| format!("--injections {injections}")),
    );
    let previous = flags.previous.iter();
    words.extend(previous.map(|folder| format!("--previous {}", folder.display())));
    words.extend(flags.bug.iter().map(|bug| format!("--bug {bug}")));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn the_printed_command_repeats_the_run() {
        for flags in [
            "--store sqlite --seconds 60",
            "--store postgres --seconds 9 --only 'kill again,pause'",
            "--store postgres --seconds 9 --injections 3,7-9 --bug no-fence",
            "--store postgres --seconds 300 --previous target/previous/debug",
            "--store sqlite --exhaustive",
            "--store sqlite --exhaustive --pairs",
        ] {
            let printed = |line: &str| {
                let words = line
                    .replace("kill again", "kill\u{a0}again")
                    .replace('\'', "");
                let words = words.split(' ').map(|it| it.replace('\u{a0}', " "));
                let line = Line::parse_from(std::iter::once("torture".to_owned()).chain(words));
                command(&line.flags, 4)
            };
            let once = printed(flags);
            let again = printed(once.trim_start_matches("cargo x torture "));
            assert_eq!(once, again);
            for word in flags.split(' ') {
                assert!(once.contains(word), "{once} lacks {word}");
            }
        }
    }
}
