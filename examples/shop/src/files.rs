//! Atomic creation of a file by the first process that tries, and creation of private folders.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// Creates a file with this content and these permissions; returns false if it exists.
///
/// The content is synced before the file gets its name, so no process sees an incomplete file. An
/// existing file is not changed.
pub(crate) fn make_once(path: &Path, content: &[u8], permissions: u32) -> io::Result<bool> {
    if path.exists() {
        return Ok(false);
    }
    // The temporary name must be unique, because another process may be starting too.
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_added_extension(format!("{}-{number}.new", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(permissions)
        .open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    let made = match fs::hard_link(&draft, path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error),
    };
    fs::remove_file(&draft)?;
    sync_folder_of(path)?;
    Ok(made)
}

/// Creates a folder and syncs its parent, so that the folder survives a crash.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    make_private(path)?;
    sync_folder_of(path)
}

/// Creates a folder and its parents if they are missing, accessible to their owner only.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, sync::atomic::AtomicBool};

    use super::*;

    #[test]
    fn a_file_that_is_there_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        assert!(make_once(&path, b"one", 0o600).unwrap());
        assert!(!make_once(&path, b"two", 0o644).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn whoever_looks_finds_it_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let content = vec![b'x'; 1 << 16];
        let path = |number: u32| folder.path().join(number.to_string());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..200 {
                    make_once(&path(number), &content, 0o600).unwrap();
                }
                is_over.store(true, Ordering::Relaxed);
            });
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(found) = fs::read(path(number)) {
                    assert_eq!(found.len(), content.len());
                    number += 1;
                }
            }
        });
    }
}
