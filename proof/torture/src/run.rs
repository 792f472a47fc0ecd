//! One run: a deployment, a storm, the time to settle, and the checks.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use hapax_testkit::wait::pace;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    artifacts::Artifacts,
    checkers::violations,
    deployment::{Binaries, Deployment, Store},
    lines::{self, moment, now},
    mutants,
    nemesis::{Injections, Storm, exhaustive},
    report::{self, Verdict, say},
    stored_rows::{self, StoredRows},
};

/// How long clients go on once the faults are over.
const CALM: Duration = Duration::from_secs(3);
/// How long nothing may happen before remaining work is given up: longer than the hand-over of a
/// partition, which takes an offer and some leases.
const STALL: Duration = Duration::from_secs(25);
const DRAIN: Duration = Duration::from_mins(2);

/// Arguments of a run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// Which store the rows are in
    #[arg(long, value_enum, default_value = "sqlite")]
    pub(crate) store: Store,
    /// Duration of the storm
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Seed of the random choices [default: another one each time]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Goes through every named place in place of a storm
    #[arg(long)]
    pub(crate) exhaustive: bool,
    /// And through each of them while a shop recovers from another
    #[arg(long, requires = "exhaustive")]
    pub(crate) pairs: bool,
    /// Use only these kinds of faults, such as `kill,pause`
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Use only these injections of the seed, such as `3,7-9`
    #[arg(long, conflicts_with = "exhaustive")]
    pub(crate) injections: Option<Injections>,
    /// Where the programs of another release are: shops and relays change over, both ways
    #[arg(long, value_name = "FOLDER")]
    pub(crate) previous: Option<PathBuf>,
    /// Plants a bug, in a build that has them
    #[arg(long)]
    pub(crate) bug: Option<String>,
    /// Where the files of the run go [default: target/torture/STORE-SEED]
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
}

/// What is judged.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Check {
    /// The folder of a run
    folder: PathBuf,
}

/// Runs a storm, and checks it.
pub(crate) async fn run(flags: Flags) -> anyhow::Result<Verdict> {
    if let Some(bug) = &flags.bug {
        mutants::check_planted(bug)?;
    }
    let seed = seed(flags.seed);
    let name = format!("{}-{seed}", flags.store.name());
    let folder = fresh(flags.folder.as_deref(), &name)?;
    say(&format!("seed {seed}, in {}", folder.display()));
    let binaries = Binaries::beside()?;
    let mut deployment =
        Deployment::build(flags.store, &folder, &binaries, seed, flags.bug.as_deref()).await?;
    if let Some(previous) = &flags.previous {
        deployment.has_another_release(previous)?;
    }
    let mut nemesis = Storm::over(deployment, binaries, seed)?;
    let began = now();
    let raged = rage(&mut nemesis, &flags).await;
    let settled = match raged {
        Ok(()) => settle(&mut nemesis.deployment).await,
        Err(error) => Err(error),
    };
    let (quiet_from, drained) = settled.with_context(|| format!("seed {seed}"))?;
    if let Some(server) = &nemesis.deployment.server {
        std::fs::write(folder.join("server.log"), server.cluster.log())?;
    }
    // Writes after the last fault are included.
    nemesis.look().await?;
    let rows = stored_rows::all(&nemesis.deployment).await?;
    std::fs::write(folder.join("rows.json"), rows.to_string())?;
    let outcome = json!({
        "store": flags.store.name(), "seed": seed, "seconds": (quiet_from - began) / 1_000_000_000,
        "began": began, "quiet_from": quiet_from, "drained_ms": u64::try_from(drained.as_millis())?,
        "previous": flags.previous.is_some(), "bug": flags.bug, "when": moment(began)?, "machine": machine(), "command": command(&flags, seed),
    });
    std::fs::write(folder.join("run.json"), outcome.to_string())?;
    drop(nemesis);
    check(&Check { folder })
}

/// The seed that is asked for, or another one each time.
pub(crate) fn seed(asked: Option<u64>) -> u64 {
    asked.unwrap_or_else(|| now() / 1_000 % 1_000_000_007)
}

/// An empty folder: the one that is asked for, or one of this name.
pub(crate) fn fresh(asked: Option<&Path>, name: &str) -> anyhow::Result<PathBuf> {
    let usual = Path::new("target/torture").join(name);
    let folder = asked.unwrap_or(&usual);
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
    say(&page);
    Ok(verdict)
}

async fn rage(nemesis: &mut Storm, flags: &Flags) -> anyhow::Result<()> {
    nemesis.deployment.up().await?;
    for clients in &mut nemesis.deployment.clients {
        clients.start()?;
    }
    if flags.exhaustive {
        let injections = exhaustive(flags.store, flags.pairs);
        return Box::pin(nemesis.go_through(&injections)).await;
    }
    let time = Duration::from_secs(flags.seconds);
    Box::pin(nemesis.rage(time, &flags.only, flags.injections.as_ref())).await
}

/// Lets everything settle, and stops it in good order; when the faults were over, and how long
/// what was left took from then.
async fn settle(deployment: &mut Deployment) -> anyhow::Result<(u64, Duration)> {
    deployment.up().await?;
    deployment.be_kind().await?;
    for is_payment in [true, false] {
        let url = deployment.provider(is_payment, "/faults");
        let outcome = json!({ "operation": "any", "mode": "ok" }).to_string();
        let outcome = deployment.http.post(&url, &[], outcome).await;
        outcome.map_err(|error| anyhow::anyhow!("cannot configure a provider: {error}"))?;
    }
    let (quiet_from, quiet_at) = (now(), Instant::now());
    pace(CALM).await;
    for clients in &mut deployment.clients {
        clients.signal("TERM")?;
    }
    for clients in &mut deployment.clients {
        clients.has_stopped().await?;
    }
    let (mut seen, mut changed) = (arrived(deployment).await?, Instant::now());
    let mut last_came = quiet_at.elapsed();
    while quiet_at.elapsed() < DRAIN && changed.elapsed() < STALL {
        pace(Duration::from_millis(250)).await;
        let now = arrived(deployment).await?;
        if now != seen {
            (seen, changed) = (now, Instant::now());
            last_came = quiet_at.elapsed();
        }
    }
    for program in deployment.shops.iter_mut().chain(&mut deployment.relays) {
        program.stop().await?;
    }
    Ok((quiet_from, last_came))
}

/// Number of events at the receivers, and number of checkouts in progress.
async fn arrived(deployment: &Deployment) -> anyhow::Result<Vec<usize>> {
    let mut counts = Vec::new();
    for name in ["hook", "feed", "stream", "mail", "payment", "shipping"] {
        counts.push(lines::read(&deployment.folder.join(format!("{name}.jsonl")))?.len());
    }
    let open = "SELECT id FROM @saga WHERE state = 'running'";
    counts.push(StoredRows::of(deployment).read(open).await?.len());
    Ok(counts)
}

/// One file with everything in the order of time, in Jepsen's shape: faults are the nemesis's.
fn history(folder: &Path) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for name in ["clients-0", "clients-1", "neighbour"] {
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
        for (word, at) in [("invoke", "from"), ("info", "until")] {
            all.push(json!({
                "type": word, "process": "nemesis", "f": line["blow"], "value": line["how"],
                "time": line[at],
            }));
        }
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
            let told = |line: &str| {
                let words = line
                    .replace("kill again", "kill\u{a0}again")
                    .replace('\'', "");
                let words = words.split(' ').map(|it| it.replace('\u{a0}', " "));
                let line = Line::parse_from(std::iter::once("torture".to_owned()).chain(words));
                command(&line.flags, 4)
            };
            let once = told(flags);
            let again = told(once.trim_start_matches("cargo x torture "));
            assert_eq!(once, again);
            for word in flags.split(' ') {
                assert!(once.contains(word), "{once} lacks {word}");
            }
        }
    }
}
