//! Secrets: values that are never printed.
//!
//! A secret is given as a text, or as `{ file = "/run/secrets/x" }`, which is read when the secret
//! is used. It is written as `***`. Read back, `***` means the secret that is stored separately, so
//! that an operator can send back unchanged what they were shown.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
    ser::SerializeMap as _,
};

/// The text that is printed instead of a secret.
const HIDDEN: &str = "***";
/// Maximum size of a secret's file in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// A value that is never printed.
#[derive(Clone)]
pub enum Secret {
    /// The secret itself.
    Text(SecretString),
    /// The file that contains the secret.
    File(PathBuf),
    /// The secret is stored separately and has to be put back before it is used.
    Apart,
}

impl Secret {
    /// Returns the secret. A file is read now, without a trailing line break.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the secret is stored separately. The text continues
    /// a sentence that begins with the name of the setting.
    pub fn reveal(&self) -> Result<SecretString, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Apart => Err("is stored apart and was not put back".to_owned()),
            Self::File(path) => {
                let shown = path.display();
                let text = read_bounded(path, FILE_BYTES_MAX);
                let text = text.map_err(|error| format!("file {shown}: {error}"))?;
                let Some(text) = text else {
                    return Err(format!("file {shown} is too long for a secret"));
                };
                let text =
                    String::from_utf8(text).map_err(|_| format!("file {shown}: not UTF-8"))?;
                let text = text.trim_end_matches(['\r', '\n']);
                if text.is_empty() {
                    return Err(format!("file {shown} is empty"));
                }
                Ok(SecretString::from(text))
            }
        }
    }
}

/// Reads a file of at most `bytes_max` bytes; `None` if it is longer.
///
/// The bound also holds for files without a length, such as devices.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    let mut file = File::open(path)?.take(bytes_max + 1);
    file.read_to_end(&mut content)?;
    Ok(Some(content).filter(|it| it.len() as u64 <= bytes_max))
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Self {
        Self::Text(SecretString::from(text.into()))
    }
}

impl Default for Secret {
    fn default() -> Self {
        "".into()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one.expose_secret() == other.expose_secret(),
            (Self::File(one), Self::File(other)) => one == other,
            (Self::Apart, Self::Apart) => true,
            _ => false,
        }
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) | Self::Apart => f.write_str(HIDDEN),
        }
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(path) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("file", path)?;
                map.end()
            }
            Self::Text(_) | Self::Apart => serializer.serialize_str(HIDDEN),
        }
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or { file = \"/path\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Secret, E> {
                Ok(match text {
                    "" => return Err(E::custom("is empty")),
                    HIDDEN => Secret::Apart,
                    text => Secret::from(text),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Secret, A::Error> {
                let mut path = None;
                while let Some(name) = map.next_key::<String>()? {
                    if name != "file" {
                        return Err(de::Error::unknown_field(&name, &["file"]));
                    }
                    path = Some(map.next_value()?);
                }
                path.map(Secret::File)
                    .ok_or_else(|| de::Error::missing_field("file"))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

#[cfg(feature = "schema")]
impl utoipa::PartialSchema for Secret {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::{KnownFormat, ObjectBuilder, SchemaFormat, schema::Type};

        let format = SchemaFormat::KnownFormat(KnownFormat::Password);
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(format))
            .into()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for Secret {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?}"), HIDDEN);
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
    }

    #[test]
    fn what_was_shown_and_comes_back_is_the_one_kept_apart() {
        let read: Secret = serde_json::from_str("\"***\"").unwrap();
        assert_eq!(read, Secret::Apart);
        assert!(read.reveal().unwrap_err().contains("apart"));
    }

    #[test]
    fn a_file_is_read_when_it_is_used_and_loses_its_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let secret: Secret = serde_json::from_value(serde_json::json!({ "file": path })).unwrap();
        assert!(secret.reveal().unwrap_err().contains("secret"));
        std::fs::write(&path, "hunter2\n").unwrap();
        assert_eq!(secret.reveal().unwrap().expose_secret(), "hunter2");
        std::fs::write(&path, "\n").unwrap();
        assert!(secret.reveal().unwrap_err().contains("empty"));
    }

    #[test]
    fn a_file_that_never_ends_is_no_secret() {
        let secret = Secret::File("/dev/zero".into());
        assert!(secret.reveal().unwrap_err().contains("too long"));
    }
}
