//! `cargo x fuzz`: runs the fuzzers of `proof/fuzz`, two at a time.
//!
//! The stable toolchain builds them, with the flags of `cargo fuzz` but without a sanitizer. The
//! inputs that a run finds stay in `target/fuzz`, and the next run continues with them. `--keep`
//! adds them to `proof/fuzz/corpus`, the corpus of the project.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::Mutex,
    thread,
};

use anyhow::{Context as _, bail};

use crate::step::from_a_shell;

const FOLDER: &str = "proof/fuzz";
const BUILT: &str = "target/fuzz";
const SECONDS: u32 = 60;
/// Seconds of each target in the gate.
const GATE_SECONDS: u32 = 5;
const AT_ONCE: usize = 2;
/// Limits: bytes of an input, megabytes of memory, seconds for one input.
const BOUNDS: [&str; 4] = [
    "-max_len=4096",
    "-rss_limit_mb=1024",
    "-timeout=10",
    "-print_final_stats=1",
];
/// Flags that keep the corpus small, because it is read before every run: short inputs, and only
/// those that the coverage needs.
const KEPT: [&str; 2] = ["-set_cover_merge=1", "-max_len=128"];
/// Compiler flags that instrument a program for libFuzzer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Parsed arguments: the duration, the targets, and whether to keep inputs instead of running.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    seconds: u32,
    targets: Vec<String>,
    keep: bool,
}

/// The result of a target.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    executions: u64,
    per_second: u64,
    /// Coverage: with the inputs of earlier runs, and at the end.
    before: u64,
    after: u64,
    /// The input that failed, or the exit status.
    failure: Option<String>,
}

/// Builds the fuzzers, runs the named ones or all, and prints their results.
pub(crate) fn fuzz(arguments: &[String]) -> anyhow::Result<()> {
    let asked = asked(arguments, &known()?)?;
    let programs = build(&[])?;
    if asked.keep {
        return asked.targets.iter().try_for_each(|it| keep(&programs, it));
    }
    run_all(&programs, &asked)
}

/// Runs every fuzzer for some seconds, as the gate does.
///
/// The build takes longer than these runs, so it optimises less.
pub(crate) fn check() -> anyhow::Result<()> {
    let manifest = fs::read_to_string(Path::new(FOLDER).join("Cargo.toml"))?;
    let programs = build(&less_optimised(&manifest)?)?;
    let asked = Asked {
        seconds: GATE_SECONDS,
        targets: known()?,
        keep: false,
    };
    run_all(&programs, &asked)
}

/// Runs the targets, two at a time, and prints their results.
fn run_all(programs: &Path, asked: &Asked) -> anyhow::Result<()> {
    let (queue, done) = (Mutex::new(asked.targets.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let next = || queue.lock().ok()?.next();
                while let Some(target) = next() {
                    let outcome = run(programs, target, asked.seconds);
                    done.lock()
                        .expect("no thread panics while it holds the lock")
                        .push((target, outcome));
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_default();
    report(programs, done)
}

fn asked(arguments: &[String], known: &[String]) -> anyhow::Result<Asked> {
    let (mut seconds, mut targets, mut keep) = (SECONDS, Vec::new(), false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => {
                let number = words.next().and_then(|it| it.parse().ok());
                seconds = number.context("--seconds takes a number")?;
            }
            "--keep" => keep = true,
            target if known.iter().any(|it| it == target) => targets.push(target.to_owned()),
            other => bail!(
                "unknown target `{other}`: expected one of {}",
                known.join(", ")
            ),
        }
    }
    if targets.is_empty() {
        targets = known.to_vec();
    }
    Ok(Asked {
        seconds,
        targets,
        keep,
    })
}

/// The existing targets. Each is a file.
fn known() -> anyhow::Result<Vec<String>> {
    let mut known = Vec::new();
    for entry in fs::read_dir(Path::new(FOLDER).join("targets"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        if let (true, Some(name)) = (path.is_file(), name) {
            known.push(name.to_owned());
        }
    }
    known.sort_unstable();
    Ok(known)
}

/// Settings of cargo with which what the manifest optimises at level 2 or 3 is optimised at level 1.
fn less_optimised(manifest: &str) -> anyhow::Result<Vec<String>> {
    let manifest: toml::Table = toml::from_str(manifest).context("the manifest is not valid")?;
    let profile = manifest.get("profile").and_then(|it| it.get("dev"));
    let profile = profile.context("the manifest has no profile `dev`")?;
    let is_high =
        |it: &toml::Value| it.get("opt-level").and_then(toml::Value::as_integer) > Some(1);
    let packages = profile.get("package").and_then(toml::Value::as_table);
    let packages = packages.into_iter().flatten().filter(|it| is_high(it.1));
    let lowered = packages.map(|(name, _)| format!("profile.dev.package.{name}.opt-level=1"));
    let own = is_high(profile).then(|| "profile.dev.opt-level=1".to_owned());
    Ok(own.into_iter().chain(lowered).collect())
}

/// Builds all targets with these settings of cargo and returns their folder.
fn build(settings: &[String]) -> anyhow::Result<PathBuf> {
    let host = host()?;
    let status = from_a_shell("cargo")
        .args(["build", "--quiet", "--locked", "--bins", "--target", &host])
        .args(["--manifest-path", &format!("{FOLDER}/Cargo.toml")])
        .args(["--target-dir", BUILT])
        .args(settings.iter().flat_map(|it| ["--config", it]))
        .env("RUSTFLAGS", FLAGS)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the fuzzers cannot be built: cargo ended with {status}");
    }
    Ok([BUILT, &host, "debug"].iter().collect())
}

/// The target triple of the toolchain. If it is named explicitly, cargo does not apply `RUSTFLAGS`
/// to build scripts.
fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output();
    let output = output.context("cannot run rustc")?.stdout;
    let text = String::from_utf8(output)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV prints no host")?.to_owned())
}

fn run(programs: &Path, target: &str, seconds: u32) -> anyhow::Result<Outcome> {
    let found = folder(&format!("{BUILT}/corpus/{target}"))?;
    let crashes = folder(&format!("{BUILT}/crashes/{target}"))?;
    let kept = folder(&format!("{FOLDER}/corpus/{target}"))?;
    let log = format!("{BUILT}/{target}.log");
    let mut command = Command::new(programs.join(target));
    command
        .args([&found, &kept])
        .args(BOUNDS)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={crashes}/"));
    let dictionary = format!("{FOLDER}/dictionaries/{target}.dict");
    if Path::new(&dictionary).exists() {
        command.arg(format!("-dict={dictionary}"));
    }
    let status = command.stderr(File::create(&log)?).status();
    let status = status.with_context(|| format!("cannot run {target}"))?;
    Ok(read(
        &String::from_utf8_lossy(&fs::read(&log)?),
        status,
        &log,
    ))
}

fn folder(path: &str) -> anyhow::Result<String> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {path}"))?;
    Ok(path.to_owned())
}

/// Parses the output of libFuzzer.
fn read(text: &str, status: ExitStatus, log: &str) -> Outcome {
    let figure = |name: &str| behind(text, name).find_map(number).unwrap_or(0);
    let before = figure("INITED cov: ");
    let reached = behind(text, " cov: ").filter_map(number).last();
    let input = behind(text, "Test unit written to ").next();
    let ended = (!status.success()).then(|| format!("{status}, see {log}"));
    Outcome {
        executions: figure("stat::number_of_executed_units:"),
        per_second: figure("stat::average_exec_per_sec:"),
        before,
        after: reached.unwrap_or(before),
        failure: input.map(ToOwned::to_owned).or(ended),
    }
}

/// The text after a word, for each line that contains the word.
fn behind<'a>(text: &'a str, word: &str) -> impl Iterator<Item = &'a str> {
    text.lines()
        .filter_map(move |line| Some(line.split_once(word)?.1))
}

fn number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

fn report(
    programs: &Path,
    mut done: Vec<(&String, anyhow::Result<Outcome>)>,
) -> anyhow::Result<()> {
    done.sort_by_key(|(target, _)| *target);
    println!("    target          executions   exec/s  coverage   new  verdict");
    let mut failures = Vec::new();
    for (target, outcome) in done {
        let outcome = outcome?;
        let Outcome {
            executions,
            per_second,
            before,
            after,
            failure,
        } = &outcome;
        let new = after.saturating_sub(*before);
        let verdict = if failure.is_some() { "FAILED" } else { "holds" };
        println!(
            "    {target:<14} {executions:>11} {per_second:>8} {after:>9} {new:>5}  {verdict}"
        );
        if let Some(input) = failure {
            let program = programs.join(target).display().to_string();
            failures.push(format!(
                "{target}: {input}\n    repeat with: {program} {input}"
            ));
        }
    }
    if !failures.is_empty() {
        bail!(
            "inputs were found that break a property\n{}",
            failures.join("\n")
        );
    }
    Ok(())
}

/// Adds the inputs that reach more code to the corpus of the project.
fn keep(programs: &Path, target: &str) -> anyhow::Result<()> {
    let kept = folder(&format!("{FOLDER}/corpus/{target}"))?;
    let found = folder(&format!("{BUILT}/corpus/{target}"))?;
    let log = File::create(format!("{BUILT}/{target}.log"))?;
    let mut command = Command::new(programs.join(target));
    command.args([&kept, &found]).args(BOUNDS).args(KEPT);
    let status = command.stderr(log).status()?;
    if !status.success() {
        bail!("{target} ended with {status}, see {BUILT}/{target}.log");
    }
    println!("    {target}: {} inputs", fs::read_dir(&kept)?.count());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn what_is_asked_for_is_a_time_and_targets_that_there_are() {
        let known = ["filter", "key"].map(str::to_owned);
        let ask = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            asked(&words, &known)
        };
        let all = ask("").unwrap();
        assert_eq!((all.seconds, all.targets.len(), all.keep), (60, 2, false));
        let one = ask("--seconds 5 key --keep").unwrap();
        assert_eq!((one.seconds, one.keep), (5, true));
        assert_eq!(one.targets, ["key"]);
        let error = ask("keys").unwrap_err().to_string();
        assert_eq!(error, "unknown target `keys`: expected one of filter, key");
        ask("--seconds soon").unwrap_err();
    }

    #[test]
    fn what_is_optimised_is_optimised_less_in_the_gate() {
        let manifest = "[profile.dev]\nopt-level = 2\n[profile.dev.package.\"*\"]\nopt-level = 0\n\
            [profile.dev.package.ryu-js]\nopt-level = 2\n[profile.dev.package.sfv]\ndebug = false\n";
        let expected = [
            "profile.dev.opt-level=1",
            "profile.dev.package.ryu-js.opt-level=1",
        ];
        assert_eq!(less_optimised(manifest).unwrap(), expected);
        less_optimised("[package]\n").unwrap_err();
    }

    #[test]
    fn the_words_of_the_fuzzer_are_read() {
        let text = "#20\tINITED cov: 410 ft: 900 corp: 12/1Kb\n\
            #4096\tpulse  cov: 431 ft: 1000 corp: 14/1Kb\n\
            #9000\tDONE   cov: 455 ft: 1024 corp: 15/1Kb\n\
            stat::number_of_executed_units: 9000\nstat::average_exec_per_sec:     300\n";
        let outcome = read(text, ExitStatus::from_raw(0), "log");
        let expected = Outcome {
            executions: 9000,
            per_second: 300,
            before: 410,
            after: 455,
            failure: None,
        };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn an_input_that_breaks_a_promise_is_named() {
        let text = "artifact_prefix='x/'; Test unit written to x/crash-1\n";
        let crashed = read(text, ExitStatus::from_raw(256), "log");
        assert_eq!(crashed.failure.as_deref(), Some("x/crash-1"));
        let ended = read("", ExitStatus::from_raw(256), "log");
        assert!(ended.failure.unwrap().ends_with("see log"));
    }
}
