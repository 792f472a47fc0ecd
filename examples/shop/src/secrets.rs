//! Secrets that are created once and stored: the one that signs outgoing webhooks, and the keys of the
//! customer portal.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use hapax::signature::Secret;

use crate::files;

/// A secret, and whether this call created it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) secret: Secret,
    pub(crate) is_new: bool,
}

/// Reads the secret at `path`, or creates it, readable by its owner only.
pub(crate) fn kept(path: &Path) -> io::Result<Kept> {
    if let Some(secret) = read(path)? {
        return Ok(Kept {
            secret,
            is_new: false,
        });
    }
    let secret = make()?;
    // The secret will be printed, so it must be durable first.
    if files::make_once(path, secret.reveal().as_bytes(), 0o600)? {
        return Ok(Kept {
            secret,
            is_new: true,
        });
    }
    // Another process has created it in the meantime.
    kept(path)
}

/// Creates a secret from the operating system's randomness.
pub(crate) fn make() -> io::Result<Secret> {
    bytes().map(Secret::mint)
}

/// 32 bytes of the operating system's randomness.
pub(crate) fn bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read(path: &Path) -> io::Result<Option<Secret>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let secret = text.trim().parse();
    secret
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_made_once_and_kept_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("webhook.secret");
        let (made, again) = (kept(&path).unwrap(), kept(&path).unwrap());
        assert!(made.is_new && !again.is_new);
        assert_eq!(made.secret.reveal(), again.secret.reveal());
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn processes_that_start_at_once_have_one_secret() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("webhook.secret");
            let start = std::sync::Barrier::new(2);
            let make = || {
                start.wait();
                kept(&path).unwrap().secret.reveal().clone()
            };
            let [one, other] = std::thread::scope(|scope| {
                [scope.spawn(make), scope.spawn(make)].map(|it| it.join().unwrap())
            });
            assert_eq!(one, other);
        }
    }

    #[test]
    fn a_file_that_holds_no_secret_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("webhook.secret");
        fs::write(&path, "hello").unwrap();
        assert_eq!(kept(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(fs::read_to_string(&path).unwrap(), "hello");
    }
}
