//! Libraries that are loaded in front of the C library, to come between a process and its machine.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

/// Builds the one of this name into a folder.
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
    fn a_clock_that_is_wrong_is_wrong_for_those_in_trouble_alone() {
        let folder = tempfile::tempdir().unwrap();
        let trouble = trouble(folder.path());
        for hours in [-5_i64, 0, 7] {
            trouble.set_clock(hours * 3_600_000_000_000 + 1);
            let outcome = python(&trouble, "import time; print(int(time.time()))");
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
    fn on_a_full_disk_nothing_grows_and_what_stands_there_can_be_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let trouble = trouble(folder.path());
        let file = folder.path().join("file");
        std::fs::write(&file, "four").unwrap();
        trouble.fill_disk(true);
        let write = |text: &str| {
            let write = format!("open({file:?}, 'r+b', 0).write(b{text:?})");
            python(&trouble, &write)
        };
        assert!(write("FOUR").status.success());
        let refused = write("more than four");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("No space left on device"), "{said}");
        assert_eq!(trouble.refused(), 1);
        trouble.fill_disk(false);
        assert!(write("more than four").status.success());
        assert_eq!(std::fs::read(&file).unwrap(), b"more than four");
    }

    fn trouble(folder: &Path) -> MachineFaults {
        let library = build("trouble", folder).unwrap();
        MachineFaults::none(&library, &folder.join("trouble"))
    }

    fn python(trouble: &MachineFaults, program: &str) -> Output {
        let mut python = Command::new("python3");
        python.args(["-c", program]).envs(trouble.environment());
        python.output().unwrap()
    }
}
