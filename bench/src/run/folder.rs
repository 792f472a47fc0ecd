//! A folder on the disk that is measured, gone when nobody needs it any more.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes an empty folder `name` in `parent`, in place of what was there.
    pub(super) fn make(parent: &Path, name: &str) -> anyhow::Result<Self> {
        let path = parent.join(name);
        if path.exists() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot empty {}", path.display()))?;
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now is emptied by the next run.
        let _ = fs::remove_dir_all(&self.0);
    }
}
