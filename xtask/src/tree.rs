//! The files of the project, read once.
//!
//! Build output, databases, and hidden folders that do not belong to the project are left out. Only
//! the path of a binary file is kept, and of a symbolic link, whose file has its own path.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;

const SKIPPED: &[&str] = &["target", "node_modules", "__pycache__"];
/// Folders that a shop creates if it is started in the root of the project.
const SKIPPED_IN_ROOT: &[&str] = &["mail", "uploads"];
const HIDDEN: &[&str] = &[".cargo", ".ci", ".config", ".github"];
const TEXT: &[&str] = &[
    "rs", "md", "toml", "sql", "sh", "py", "js", "mjs", "run", "yml", "json", "patch",
];

/// The text of each file, by its path relative to the root, with `/`.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Reads the tree under `root`.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        tree.walk(root, "")?;
        Ok(tree)
    }

    /// A tree of the given files.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self(files.iter().map(own).collect())
    }

    /// The number of files.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The text of a file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Whether a file or folder exists.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.0.contains_key(path) || self.0.keys().any(|file| file.starts_with(&folder))
    }

    /// Files whose path ends with `end`, with their text, sorted by path.
    pub(crate) fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.iter().filter(move |(path, _)| path.ends_with(end))
    }

    /// Files in a folder whose path ends with `end`, with their text.
    pub(crate) fn within<'a>(
        &'a self,
        folder: &'a str,
        end: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.under(folder)
            .filter(move |(path, _)| path.ends_with(end))
    }

    /// Files in a folder, with their text.
    pub(crate) fn under<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.iter()
            .filter(move |(path, _)| path.starts_with(folder))
    }

    /// All files, with their text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn walk(&mut self, folder: &Path, prefix: &str) -> anyhow::Result<()> {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {prefix:?}"))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            // In a worktree of git, `.git` is a file.
            if name == ".git" || is_database(&name) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                let hidden = name.starts_with('.') && !HIDDEN.contains(&name.as_str());
                let skipped = SKIPPED.contains(&name.as_str())
                    || prefix.is_empty() && SKIPPED_IN_ROOT.contains(&name.as_str());
                if !hidden && !skipped {
                    self.walk(&entry.path(), &format!("{path}/"))?;
                }
            } else {
                self.add(&entry.path(), path)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, file: &Path, path: String) -> anyhow::Result<()> {
        let end = path.rsplit(['.', '/']).next().unwrap_or_default();
        let is_link = fs::symlink_metadata(file)?.is_symlink();
        let text = if TEXT.contains(&end) && !is_link {
            fs::read_to_string(file).with_context(|| format!("{path} is not UTF-8 text"))?
        } else {
            String::new()
        };
        self.0.insert(path, text);
        Ok(())
    }
}

/// Whether a file is an SQLite database, or its log or lock.
fn is_database(name: &str) -> bool {
    name.contains(".db-") || Path::new(name).extension().is_some_and(|it| it == "db")
}
