//! Libraries that are preloaded before the C library, to inject machine faults into a process.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

/// Builds the library `name` into a folder.
pub(crate) fn build(name: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("preload/{name}.c"));
    let library = folder.join(format!("{name}.so"));
    let mut compiler = Command::new("cc");
    compiler.args([
        "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
    ]);
    let built = compiler.arg(&library).arg(source).status();
    if !built.context("no C compiler: install gcc")?.success() {
        bail!("{name} cannot be built");
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    use std::process::Output;

    use hapax_testkit::machine_faults::MachineFaults;

    use super::*;
    use crate::lines::now;

    #[test]
    fn a_wrong_clock_affects_only_processes_with_the_library() {
        let folder = tempfile::tempdir().unwrap();
        let faults = faults(folder.path());
        for hours in [-5_i64, 0, 7] {
            faults.set_clock(hours * 3_600_000_000_000 + 1);
            let outcome = python(&faults, "import time; print(int(time.time()))");
            let outcome: i64 = String::from_utf8(outcome.stdout)
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            let ahead = outcome - i64::try_from(now() / 1_000_000_000).unwrap();
            assert!((ahead - hours * 3_600).abs() < 60, "{ahead} s");
        }
    }

    #[test]
    fn on_a_full_disk_no_file_grows_and_existing_bytes_can_be_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let faults = faults(folder.path());
        let file = folder.path().join("file");
        std::fs::write(&file, "four").unwrap();
        faults.fill_disk(true);
        let write = |text: &str| {
            let write = format!("open({file:?}, 'r+b', 0).write(b{text:?})");
            python(&faults, &write)
        };
        assert!(write("FOUR").status.success());
        let refused = write("more than four");
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains("No space left on device"), "{error}");
        assert_eq!(faults.refused(), 1);
        faults.fill_disk(false);
        assert!(write("more than four").status.success());
        assert_eq!(std::fs::read(&file).unwrap(), b"more than four");
    }

    fn faults(folder: &Path) -> MachineFaults {
        let library = build("machine_faults", folder).unwrap();
        MachineFaults::none(&library, &folder.join("machine_faults"))
    }

    fn python(faults: &MachineFaults, program: &str) -> Output {
        let mut python = Command::new("python3");
        python.args(["-c", program]).envs(faults.environment());
        python.output().unwrap()
    }
}
