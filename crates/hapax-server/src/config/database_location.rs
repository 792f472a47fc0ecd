//! Location of the database: a PostgreSQL server, or an SQLite file.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret as _, SecretString};

/// The accepted forms, for the error message.
const ACCEPTED: &str = "must be a PostgreSQL URL such as postgres://user@host/database, or an \
                        SQLite file such as sqlite:shop.db";
/// The extensions by which the name of an SQLite file is recognized before the file exists.
const EXTENSIONS: [&str; 3] = ["db", "sqlite", "sqlite3"];

/// A database.
#[derive(Clone, Debug)]
pub(crate) enum DatabaseLocation {
    /// An SQLite file.
    File(PathBuf),
    /// A PostgreSQL server, by its URL.
    Server(SecretString),
}

impl DatabaseLocation {
    /// Parses `postgres://...`, `sqlite:PATH`, `sqlite://PATH`, or the path of an SQLite file.
    ///
    /// The error contains at most the scheme of the text, because the rest may be a secret.
    pub(crate) fn parse(text: &SecretString) -> Result<Self, String> {
        let url = text.expose_secret();
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        if let Some("postgres" | "postgresql") = scheme {
            return Ok(Self::Server(text.clone()));
        }
        if let Some(path) = url.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(format!("{ACCEPTED}, and sqlite: lacks the path"));
            }
            return Ok(Self::File(path.into()));
        }
        match scheme {
            Some(scheme) => Err(format!("{ACCEPTED}, not {scheme}://")),
            None if is_file(Path::new(url)) => Ok(Self::File(url.into())),
            None => Err(ACCEPTED.to_owned()),
        }
    }
}

/// The kind of the database, without anything secret.
impl fmt::Display for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(_) => f.write_str("PostgreSQL"),
        }
    }
}

/// Whether a path without a scheme is that of an SQLite file.
fn is_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|it| it.to_str());
    path.is_file() || extension.is_some_and(|it| EXTENSIONS.contains(&it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_a_server_are_distinguished_by_their_scheme() {
        check("sqlite:a/b.db", Some("a/b.db"));
        check("sqlite:data", Some("data"));
        check("sqlite://a/b.db", Some("a/b.db"));
        check("sqlite:///a/b.db", Some("/a/b.db"));
        check("sqlite:/a/b.db", Some("/a/b.db"));
        for path in ["shop.db", "/a/shop.sqlite", "./shop.sqlite3"] {
            check(path, Some(path));
        }
        check("postgres://db/shop", None);
        check("postgresql://u:p@db:6432/shop?sslmode=require", None);
    }

    #[test]
    fn an_existing_file_needs_neither_a_scheme_nor_an_extension() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        check(path, Some(path));
    }

    #[test]
    fn anything_else_is_refused_with_what_is_accepted_and_without_a_secret() {
        for (text, ending) in [
            ("mysql://u:hunter2@db/a", ", not mysql://"),
            ("sqlite:", "lacks the path"),
            ("sqlite://", "lacks the path"),
            ("host=db password=hunter2", "sqlite:shop.db"),
            ("/no/such/file", "sqlite:shop.db"),
            ("", "sqlite:shop.db"),
        ] {
            let error = DatabaseLocation::parse(&text.into()).unwrap_err();
            assert!(error.starts_with(ACCEPTED), "{text}: {error}");
            assert!(error.ends_with(ending), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{text}: {error}");
        }
    }

    #[track_caller]
    fn check(text: &str, file: Option<&str>) {
        let found = match DatabaseLocation::parse(&text.into()).unwrap() {
            DatabaseLocation::File(path) => Some(path),
            DatabaseLocation::Server(url) => {
                assert_eq!(url.expose_secret(), text);
                None
            }
        };
        assert_eq!(found.as_deref(), file.map(Path::new), "{text}");
    }
}
