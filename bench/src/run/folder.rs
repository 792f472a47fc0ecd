//! Folders for databases, which are removed when they are dropped.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder `name` in `parent` and removes an existing one.
    pub(super) fn make(parent: &Path, name: &str) -> anyhow::Result<Self> {
        let path = parent.join(name);
        if path.exists() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot empty {}", path.display()))?;
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    /// The path of the folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the next run removes the folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_emptied_when_it_is_made_and_gone_when_it_is_dropped() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("round");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("old.db"), "x").unwrap();
        let folder = Folder::make(parent.path(), "round").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(folder.path().join("new.db"), "x").unwrap();
        drop(folder);
        assert!(!left.exists());
    }
}
