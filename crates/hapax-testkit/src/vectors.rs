//! Vectors: cases that every implementation of the contract runs, in any language.
//!
//! A file of `sdk/vectors` has cases with an input and what it results in. A test computes the
//! result of each input, and [`Vectors::check`] compares it with the file. With `UPDATE_EXPECT=1`
//! it writes the results to the file instead. The files are part of the repository only: a test
//! that needs one fails in an unpacked crate.

use std::{
    collections::BTreeSet,
    env,
    fmt::{Debug, Write as _},
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The version of the shape of the files.
const VERSION: u32 = 1;

/// A file of vectors, with inputs of the type `I` and results of the type `E`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vectors<I, E> {
    comment: String,
    version: u32,
    cases: Vec<Case<I, E>>,
    #[serde(skip)]
    path: PathBuf,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Case<I, E> {
    name: String,
    input: I,
    /// Absent in a new case until the file is written.
    expect: Option<E>,
}

impl<I, E> Vectors<I, E>
where
    I: DeserializeOwned + Serialize,
    E: DeserializeOwned + Serialize + PartialEq + Debug,
{
    /// Reads a file.
    ///
    /// # Panics
    /// Panics if the file is missing, malformed, of another version or without cases, or if two of
    /// its cases have the same name.
    pub fn load(file: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/vectors");
        let path = folder.join(file);
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let mut vectors: Self = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{file} is not a file of vectors: {error}"));
        assert_eq!(vectors.version, VERSION, "version of {file}");
        assert!(!vectors.cases.is_empty(), "{file} has no cases");
        let names: BTreeSet<&str> = vectors.cases.iter().map(|case| &*case.name).collect();
        assert_eq!(
            names.len(),
            vectors.cases.len(),
            "two cases of {file} have the same name"
        );
        vectors.path = path;
        vectors
    }

    /// The inputs of the cases, in order.
    pub fn inputs(&self) -> impl Iterator<Item = &I> {
        self.cases.iter().map(|case| &case.input)
    }

    /// Compares the results of all cases with the file, or writes them to it.
    ///
    /// # Panics
    /// Panics if a result is missing or differs from the file, or if the file cannot be written.
    #[track_caller]
    pub fn check(mut self, results: Vec<E>) {
        assert_eq!(results.len(), self.cases.len(), "the number of results");
        if env::var_os("UPDATE_EXPECT").is_some() {
            for (case, result) in self.cases.iter_mut().zip(results) {
                case.expect = Some(result);
            }
            fs::write(&self.path, self.text()).expect("the file can be written");
            return;
        }
        let differences = self.differences(&results);
        assert!(
            differences.is_empty(),
            "{} cases of {} differ:\n{}",
            differences.len(),
            self.path.display(),
            differences.join("\n")
        );
    }

    fn differences(&self, results: &[E]) -> Vec<String> {
        let mut differences = Vec::new();
        for (case, result) in self.cases.iter().zip(results) {
            if case.expect.as_ref() == Some(result) {
                continue;
            }
            let expect = case.expect.as_ref();
            let expect = expect.map_or_else(|| "nothing".to_owned(), ascii);
            let (name, result) = (&case.name, ascii(result));
            differences.push(format!("{name}\n  expected {expect}\n  found    {result}"));
        }
        differences
    }

    /// The file, with one case on each line.
    fn text(&self) -> String {
        let cases: Vec<String> = self.cases.iter().map(ascii).collect();
        format!(
            "{{\n  \"comment\": {},\n  \"version\": {},\n  \"cases\": [\n    {}\n  ]\n}}\n",
            ascii(&self.comment),
            self.version,
            cases.join(",\n    ")
        )
    }
}

/// Bytes in a vector.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Data {
    /// The bytes of this text in UTF-8.
    Text(String),
    /// Any bytes.
    Hex {
        /// The bytes in hexadecimal.
        hex: String,
    },
    /// A JSON object of which only the number of members matters.
    Members {
        /// The number of members.
        members: usize,
    },
}

impl Data {
    /// Creates the data of a vector from its bytes.
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex {
                hex: hapax::key::hex(bytes),
            },
        }
    }

    /// The bytes.
    ///
    /// # Panics
    /// Panics if the text is not hexadecimal.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Hex { hex } => decode(hex),
            Self::Members { members } => {
                let members: Vec<String> = (0..*members).map(|n| format!("\"m{n}\":0")).collect();
                format!("{{{}}}", members.join(",")).into_bytes()
            }
        }
    }
}

fn decode(hex: &str) -> Vec<u8> {
    assert!(hex.is_ascii() && hex.len().is_multiple_of(2), "{hex}");
    let digits = (0..hex.len()).step_by(2).map(|at| &hex[at..at + 2]);
    let byte = |pair| u8::from_str_radix(pair, 16).expect("it is hexadecimal");
    digits.map(byte).collect()
}

/// JSON in ASCII, so that no editor changes the characters of a vector.
fn ascii<T: Serialize + ?Sized>(value: &T) -> String {
    let json = serde_json::to_string(value).expect("a vector can be written as JSON");
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, ' '..='~') {
            text.push(character);
            continue;
        }
        let mut units = [0; 2];
        for unit in &*character.encode_utf16(&mut units) {
            write!(text, "\\u{unit:04x}").expect("a text takes any text");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_text_or_hexadecimal_or_a_number_of_members() {
        let read = |json: &str| serde_json::from_str::<Data>(json).map(|data| data.bytes());
        assert_eq!(read("\"\\u00e9\"").ok(), Some("\u{e9}".into()));
        assert_eq!(read(r#"{"hex":"00fF"}"#).ok(), Some(vec![0, 255]));
        let object = br#"{"m0":0,"m1":0}"#;
        assert_eq!(read(r#"{"members":2}"#).ok(), Some(object.to_vec()));
        assert!(read("7").is_err());
        for bytes in [&b"a"[..], b"\xff", "\u{e9}".as_bytes()] {
            assert_eq!(Data::of(bytes).bytes(), bytes);
        }
    }

    #[test]
    fn a_file_is_written_in_ascii_with_one_case_on_each_line() {
        let vectors = vectors(vec![case("a", "\u{e9}\u{1f600}\u{7f}\n"), case("b", "\"")]);
        let expected = r#"{
  "comment": "c",
  "version": 1,
  "cases": [
    {"name":"a","input":"\u00e9\ud83d\ude00\u007f\n","expect":1},
    {"name":"b","input":"\"","expect":1}
  ]
}
"#;
        assert_eq!(vectors.text(), expected);
    }

    #[test]
    fn a_result_that_differs_or_is_not_expected_yet_is_found() {
        let new = Case {
            expect: None,
            ..case("new", "")
        };
        let vectors = vectors(vec![case("same", ""), case("other", ""), new]);
        let differences = vectors.differences(&[1, 2, 3]);
        assert_eq!(
            differences,
            [
                "other\n  expected 1\n  found    2",
                "new\n  expected nothing\n  found    3"
            ]
        );
    }

    fn case(name: &str, input: &str) -> Case<String, u8> {
        Case {
            name: name.to_owned(),
            input: input.to_owned(),
            expect: Some(1),
        }
    }

    fn vectors(cases: Vec<Case<String, u8>>) -> Vectors<String, u8> {
        Vectors {
            comment: "c".to_owned(),
            version: VERSION,
            cases,
            path: PathBuf::new(),
        }
    }
}
