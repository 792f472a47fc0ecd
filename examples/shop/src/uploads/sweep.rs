//! Deletes the files that crashes have left: drafts, and files that no row names.
//!
//! An upload stores its file before it commits its row, so a file without a row may still get one.
//! The sweep deletes only files that were not modified for longer than any request lasts. It checks
//! their age again under the folder's exclusive lock, because an upload that finds its file already
//! stored updates the modification time.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use hapax::store::StoreError;
use tokio::task::spawn_blocking;

use super::folder::Folder;
use crate::database::{Database, params, query};

/// How often the folder is swept.
pub(crate) const SWEEP: Duration = Duration::from_hours(1);
/// The age from which a file may be deleted; a request takes seconds.
const AGE: Duration = Duration::from_hours(1);
/// The most files that one query checks.
const BATCH: usize = 500;

/// Deletes old drafts and files without a row, once.
pub(crate) async fn sweep<D: Database>(folder: &Folder, store: &D) -> Result<(), SweepError> {
    let listed = folder.clone();
    let old = spawn_blocking(move || old(&listed)).await;
    let (drafts, files) = old.map_err(io::Error::other)??;
    remove(folder, drafts).await?;
    for names in files.chunks(BATCH) {
        let names = serde_json::to_string(names).expect("names can be serialized");
        let unnamed = store.select(query::UPLOAD_UNNAMED, params![names]).await?;
        let paths = unnamed
            .into_iter()
            .map(|mut row| Ok(folder.file(&row.text("value")?)))
            .collect::<Result<Vec<_>, StoreError>>()?;
        remove(folder, paths).await?;
    }
    Ok(())
}

/// Returns the drafts and the files that are older than `AGE`.
fn old(folder: &Folder) -> io::Result<(Vec<PathBuf>, Vec<String>)> {
    let (mut drafts, mut files) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder.path())? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        // A file that is removed or renamed in the meantime needs no sweep.
        let is_old = || folder.is_older(&path, AGE).unwrap_or(false);
        if is_draft(&path) && is_old() {
            drafts.push(path);
        } else if is_file(name) && is_old() {
            files.push(name.to_owned());
        }
    }
    Ok((drafts, files))
}

/// Removes the files that are still old under the exclusive lock.
async fn remove(folder: &Folder, paths: Vec<PathBuf>) -> io::Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    let folder = folder.clone();
    let removing = spawn_blocking(move || {
        let _alone = folder.held_alone()?;
        for path in paths {
            match folder.is_older(&path, AGE) {
                Ok(true) => fs::remove_file(&path)?,
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    });
    removing.await.map_err(io::Error::other)?
}

fn is_draft(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "part")
}

fn is_file(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// An error of the sweep, which runs again later.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    /// The folder cannot be read or written.
    #[error("cannot read or write the upload folder")]
    Folder(#[from] io::Error),
    /// The store cannot be queried for the files that have rows.
    #[error("cannot query which files have rows")]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use hapax::{Clock, Random, Timestamp};

    use super::*;

    #[tokio::test]
    async fn a_file_that_an_upload_finds_while_it_is_about_to_be_swept_stays() {
        let directory = tempfile::tempdir().unwrap();
        let now = Timestamp::from_millis(1_700_000_000_000);
        let folder = Folder::open(
            directory.path().into(),
            Clock::new(move || now),
            Random::new(|| 7),
        );
        let folder = folder.unwrap();
        let [found, left] = ["a", "b"].map(|name| folder.file(&name.repeat(64)));
        for path in [&found, &left] {
            fs::write(path, "x").unwrap();
            let file = fs::File::open(path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap();
        }
        // An upload holds the shared lock, and finds one of the files.
        let held = folder.held().unwrap();
        let (sweeper, paths) = (folder.clone(), vec![found.clone(), left.clone()]);
        let sweeping = tokio::spawn(async move { remove(&sweeper, paths).await });
        tokio::task::yield_now().await;
        folder.touch(&found).unwrap();
        drop(held);
        sweeping.await.unwrap().unwrap();
        assert!(found.exists() && !left.exists());
    }
}
