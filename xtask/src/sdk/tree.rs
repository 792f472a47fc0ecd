//! The copy of `sdk` in which the packages are built.
//!
//! The copy has the same relative paths: the tests of the packages read the migrations and the
//! vectors beside them. Installed packages of an earlier copy are kept.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::Folders;

/// Files that builds and tools leave in the source tree, which is not copied.
const LEFT: &[&str] = &[
    "node_modules",
    "dist",
    "build",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
];
/// What is kept of an earlier copy.
const KEPT: &[&str] = &["node_modules", ".mypy_cache", ".ruff_cache"];
/// The files that the packages read outside of their folders.
const READ: &[&str] = &["crates", "docs", "sdk/vectors"];

/// Copies both packages.
pub(super) fn copy(folders: &Folders) -> anyhow::Result<()> {
    for language in ["node", "python"] {
        let copy = folders.copy(language);
        clear(&copy)?;
        copy_into(&folders.root.join("sdk").join(language), &copy, LEFT)?;
    }
    for path in READ {
        let link = folders.target.join("tree").join(path);
        let _before = fs::remove_file(&link);
        symlink(folders.root.join(path), &link).with_context(|| link.display().to_string())?;
    }
    Ok(())
}

/// Copies the files of a folder and of the folders in it, except those with a name in `left`.
pub(super) fn copy_into(from: &Path, to: &Path, left: &[&str]) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    let entries = fs::read_dir(from).with_context(|| from.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if left.iter().any(|left| name.as_os_str() == *left) {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        if from.is_dir() {
            copy_into(&from, &to, left)?;
        } else {
            fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        }
    }
    Ok(())
}

/// The files of a folder whose name ends so.
pub(super) fn files(folder: &Path, end: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(end) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Removes an earlier copy, except what is kept.
pub(super) fn clear(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if KEPT.iter().any(|kept| name.as_os_str() == *kept) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_sources_only_and_keeps_installed_packages() {
        let folder = std::env::temp_dir().join(format!("sdk-tree-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        let (from, to) = (folder.join("from"), folder.join("to"));
        for path in ["from/src/core", "from/dist", "to/node_modules", "to/src"] {
            fs::create_dir_all(folder.join(path)).unwrap();
        }
        for path in [
            "from/src/core/key.ts",
            "from/dist/key.js",
            "to/src/removed.ts",
            "to/node_modules/pg",
        ] {
            fs::write(folder.join(path), path).unwrap();
        }
        clear(&to).unwrap();
        copy_into(&from, &to, LEFT).unwrap();
        assert!(to.join("src/core/key.ts").is_file());
        assert!(to.join("node_modules/pg").is_file());
        assert!(!to.join("dist").exists() && !to.join("src/removed.ts").exists());
        assert_eq!(
            files(&to.join("src/core"), ".ts").unwrap(),
            [to.join("src/core/key.ts")]
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
