//! Runs the shell commands of the README, of the tutorial, and of guides that start with nothing.
//!
//! The commands run in order, in an empty folder for each page, and except for guides against a shop.
//! A block of Python or TOML that begins with a path in a comment is written to that file. A
//! comment `# -> TEXT` below a command says that its output contains TEXT. The command is repeated
//! until it does, because an event takes a moment to arrive. A number has to be a whole word, because a
//! random id of the output may contain its digits. Every command of these pages is safe to repeat,
//! which is what the pages are about.

use std::{
    env, fs,
    os::unix::process::CommandExt as _,
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

/// The guides that start their own processes.
const GUIDES: [&str; 3] = [
    "docs/guides/gateway-django.md",
    "docs/guides/gateway-mcp.md",
    "docs/guides/offer-webhooks.md",
];
/// The address of the services in the guides.
const SERVICE: &str = "127.0.0.1:8000";

/// Runs the commands of every page, each page with a new shop or without one.
pub(crate) fn walk(root: &Path) -> anyhow::Result<()> {
    let target = metadata()?["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("cargo metadata names no target directory")?;
    for (page, heading) in PAGES {
        println!("    {page}");
        let text = fs::read_to_string(root.join(page)).with_context(|| page.to_owned())?;
        let lines = section(&text, heading);
        walk_through(&lines, &target, true).with_context(|| page.to_owned())?;
    }
    for page in GUIDES {
        println!("    {page}");
        let text = fs::read_to_string(root.join(page)).with_context(|| page.to_owned())?;
        walk_through(&section(&text, ""), &target, false).with_context(|| page.to_owned())?;
    }
    Ok(())
}

fn walk_through(lines: &[String], target: &Path, has_shop: bool) -> anyhow::Result<()> {
    let folder = target.join("walkthrough");
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder)?;
    let address = format!("127.0.0.1:{}", free_port());
    let service = format!("127.0.0.1:{}", free_port());
    let shop = has_shop.then(|| Shop::start(target, &folder, &address));
    let _shop = shop.transpose()?;
    let script = script(lines).replace(ADDRESS, &address);
    let script = script.replace(SERVICE, &service);
    fs::write(folder.join("lines.sh"), script)?;
    let mut paths = vec![target.join("debug")];
    paths.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut bash = Command::new("bash")
        .args(["-eu", "lines.sh"])
        .current_dir(&folder)
        .env("PATH", env::join_paths(paths)?)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .context("cannot run bash")?;
    let status = bash.wait()?;
    // The processes that the page has started, if it has failed before it stopped them.
    let group = format!("-{}", bash.id());
    let mut kill = Command::new("kill");
    let kill = kill.args(["-KILL", "--", &group]).stderr(Stdio::null());
    drop(kill.status());
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

/// The shell commands of a section, without those that start the shop, and a command for each file.
/// Continued lines are joined.
fn section(page: &str, heading: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut within, mut shell) = (heading.is_empty(), false);
    let mut file: Option<Vec<&str>> = None;
    for line in page.lines() {
        match (line, &mut file) {
            ("```", Some(block)) => {
                lines.extend(write(block).filter(|_| within));
                file = None;
            }
            (_, Some(block)) => block.push(line),
            ("```python" | "```toml", None) => file = Some(Vec::new()),
            ("```sh", None) => shell = true,
            ("```", None) => shell = false,
            _ if !shell && line.starts_with("## ") => {
                within = heading.is_empty() || line == heading;
            }
            _ if shell && within => lines.push(line.to_owned()),
            _ => {}
        }
    }
    let joined = lines.join("\n").replace("\\\n", " ");
    let runs = |line: &&str| !line.is_empty() && !line.starts_with("cargo run");
    joined.lines().filter(runs).map(str::to_owned).collect()
}

/// The command that writes a block to the file in its first line; `None` if it names no file.
fn write(block: &[&str]) -> Option<String> {
    let path = block.first()?.strip_prefix("# ")?;
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    if !path.contains('.') || !path.chars().all(is_path) {
        return None;
    }
    let lines: Vec<String> = block.iter().map(|line| quoted(line)).collect();
    Some(format!("printf '%s\\n' {} >{path}", lines.join(" ")))
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
      case $text in
        *[!0-9]*) case $output in *"$text"*) ;; *) holds=no ;; esac ;;
        *) printf '%s\n' "$output" | grep -qwF -- "$text" || holds=no ;;
      esac
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
    fn a_block_with_a_path_is_written_to_its_file() {
        let page = "## A\n```toml\n# a.toml\nx = \"it's\"\n\n## no heading\n```\n\
            ```toml\nother = 1\n```\n```python\n# no path\n```\n";
        let expected = r"printf '%s\n' '# a.toml' 'x = @it'\''s@' '' '## no heading' >a.toml";
        assert_eq!(section(page, "## A"), [expected.replace('@', "\"")]);
        assert_eq!(section(page, "## B"), Vec::<String>::new());
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

    #[test]
    fn a_number_is_expected_as_a_word() {
        for (line, expected) in [("echo a422b", false), ("echo HTTP/1.1 422 Conflict", true)] {
            let lines = [line.to_owned(), "# -> 422".to_owned()];
            assert_eq!(
                bash(&script(&lines).replace("seq 100", "seq 1")),
                expected,
                "{line}"
            );
        }
    }

    fn bash(script: &str) -> bool {
        let output = Command::new("bash").args(["-euc", script]).output();
        output.is_ok_and(|output| output.status.success())
    }
}
