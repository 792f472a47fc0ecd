//! Runs the shell commands of the README and of the tutorial.
//!
//! The commands run in order, against a shop that is started in an empty folder for each page. A
//! comment `# -> TEXT` below a command says that its output contains TEXT. The command is repeated
//! until it does, because an event takes a moment to arrive. Every command of these pages is safe
//! to repeat, which is what the pages are about.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, bail};

use crate::{metadata::metadata, port::free_port};

/// The address of the shop in the pages.
const ADDRESS: &str = "127.0.0.1:8080";

/// The pages, each with the heading of the section to run. If the heading is empty, the whole page
/// is run.
const PAGES: [(&str, &str); 2] = [
    ("README.md", "## Try it"),
    ("docs/tutorial/first-safe-write.md", ""),
];

/// Runs the commands of every page, each page with a new shop.
pub(crate) fn walk(root: &Path) -> anyhow::Result<()> {
    let target = metadata()?["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("cargo metadata names no target directory")?;
    for (page, heading) in PAGES {
        println!("    {page}");
        let text = fs::read_to_string(root.join(page)).with_context(|| page.to_owned())?;
        walk_through(&section(&text, heading), &target).with_context(|| page.to_owned())?;
    }
    Ok(())
}

fn walk_through(lines: &[String], target: &Path) -> anyhow::Result<()> {
    let folder = target.join("walkthrough");
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder)?;
    let address = format!("127.0.0.1:{}", free_port());
    let _shop = Shop::start(target, &folder, &address)?;
    fs::write(
        folder.join("lines.sh"),
        script(lines).replace(ADDRESS, &address),
    )?;
    let status = Command::new("bash")
        .args(["-eu", "lines.sh"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .status()
        .context("cannot run bash")?;
    if !status.success() {
        bail!(
            "a command did not print what the page says; see {}",
            folder.display()
        );
    }
    Ok(())
}

/// A running shop, which is killed when this value is dropped.
struct Shop(Child);

impl Shop {
    fn start(target: &Path, folder: &Path, address: &str) -> anyhow::Result<Self> {
        let log = fs::File::create(folder.join("shop.log"))?;
        let shop = Command::new(target.join("debug/shop"))
            .args(["--listen", address, "--data-dir", "."])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the shop")?;
        Ok(Self(shop))
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The shell commands of a section, without those that start the shop. Continued lines are joined.
fn section(page: &str, heading: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut within, mut shell) = (heading.is_empty(), false);
    for line in page.lines() {
        match line {
            "```sh" => shell = true,
            "```" => shell = false,
            _ if !shell && line.starts_with("## ") => {
                within = heading.is_empty() || line == heading;
            }
            _ if shell && within => lines.push(line),
            _ => {}
        }
    }
    let joined = lines.join("\n").replace("\\\n", " ");
    let runs = |line: &&str| !line.is_empty() && !line.starts_with("cargo run");
    joined.lines().filter(runs).map(str::to_owned).collect()
}

/// A script that repeats each command until its output contains the expected texts.
fn script(lines: &[String]) -> String {
    let mut script = String::from(PRELUDE);
    let mut lines = lines.iter().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            continue;
        }
        let mut expected = Vec::new();
        while let Some(text) = lines.peek().and_then(|next| next.strip_prefix("# -> ")) {
            expected.push(quoted(text));
            lines.next();
        }
        let call = ["expect", &quoted(line), &expected.join(" ")].join(" ");
        script.push_str(call.trim_end());
        script.push('\n');
    }
    script
}

/// Quotes `text` for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

const PRELUDE: &str = r#"expect() {
  line=$1; shift
  echo "    \$ $line"
  for try in $(seq 100); do
    output=$(eval "$line" 2>&1) && holds=yes || holds=no
    for text in "$@"; do
      case $output in *"$text"*) ;; *) holds=no ;; esac
    done
    if [ $holds = yes ]; then return; fi
    sleep 0.1
  done
  printf 'expected: %s\nbut got: %s\n' "$*" "$output"
  exit 1
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "# R\n```sh\nother\n```\n## Try it\n```sh\ncargo run -p shop\n```\n\
        text\n```sh\n# a remark\necho \"it's\" \\\n  here\n# -> it's here\n\ntrue\n```\n## Next\n\
        ```sh\nnever\n```\n";

    #[test]
    fn only_the_lines_of_the_section_run_and_a_continued_line_is_one() {
        let lines = section(README, "## Try it");
        assert_eq!(
            lines,
            [
                "# a remark",
                "echo \"it's\"    here",
                "# -> it's here",
                "true"
            ]
        );
    }

    #[test]
    fn a_line_whose_output_is_as_promised_passes() {
        let script = script(&section(README, "## Try it"));
        let calls = script.strip_prefix(PRELUDE).unwrap();
        assert_eq!(
            calls,
            "expect 'echo \"it'\\''s\"    here' 'it'\\''s here'\nexpect 'true'\n"
        );
        assert!(bash(&script));
    }

    #[test]
    fn a_line_whose_output_differs_fails() {
        let lines = ["echo no".to_owned(), "# -> yes".to_owned()];
        assert!(!bash(&script(&lines).replace("seq 100", "seq 1")));
    }

    fn bash(script: &str) -> bool {
        let output = Command::new("bash").args(["-euc", script]).output();
        output.is_ok_and(|output| output.status.success())
    }
}
