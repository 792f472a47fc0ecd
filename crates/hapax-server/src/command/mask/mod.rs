//! `hapax mask`: masks personal data and secrets in a text that is about to be shared.
//!
//! Input that was declared or recognized as JSON is never printed if it cannot be parsed.

mod rules;

use std::{
    io::{self, BufRead, BufWriter, Read as _, Write},
    process::ExitCode,
};

use super::{Context, Failure};
use crate::output::{FAILED, LineError, USAGE};
use rules::Rules;

/// The longest line, and the longest JSON document, in bytes.
const LONGEST: u64 = 64 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Format of the input; by default it is lines, or one JSON document if the first line is its
    /// beginning
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Also mask the values of members, headers and columns with this name; may be given more than
    /// once
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Also mask what this regular expression matches; may be given more than once
    #[arg(long = "pattern", value_name = "REGEX")]
    patterns: Vec<String>,
}

/// The format of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Lines, each of them JSON or text
    Lines,
    /// One JSON document
    Json,
    /// CSV whose first row has the names of the columns
    Csv,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<ExitCode, Failure> {
    let names = context.config.admin.mask.iter().chain(&args.names);
    let rules = Rules::new(names, &args.patterns);
    let rules = rules.map_err(|error| Failure::new(USAGE, format!("--pattern: {error}")))?;
    let mut out = BufWriter::new(io::stdout().lock());
    mask(&rules, args.format, io::stdin().lock(), &mut out)?;
    out.flush().map_err(LineError::from)?;
    Ok(ExitCode::SUCCESS)
}

fn mask(
    rules: &Rules,
    format: Option<Format>,
    mut input: impl BufRead,
    out: &mut impl Write,
) -> Result<(), Failure> {
    skip_byte_order_mark(&mut input)?;
    if format == Some(Format::Csv) {
        return table(rules, input, out);
    }
    let mut line = Vec::new();
    if format == Some(Format::Json) {
        return document(rules, line, input, out);
    }
    let mut is_first = format.is_none();
    while next_line(&mut input, &mut line)? {
        if is_first && rules::is_the_beginning_of_json(&String::from_utf8_lossy(&line)) {
            return document(rules, line, input, out);
        }
        let text = String::from_utf8_lossy(&line);
        is_first = is_first && text.trim().is_empty();
        let masked = rules.line(&text);
        out.write_all(masked.as_bytes()).map_err(LineError::from)?;
    }
    Ok(())
}

/// Skips a byte order mark. Refuses UTF-16, in which no name and no form would be recognized.
fn skip_byte_order_mark(input: &mut impl BufRead) -> Result<(), Failure> {
    let start = input.fill_buf()?;
    if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") {
        let remedy = "convert it to UTF-8 first";
        return Err(Failure::new(
            FAILED,
            format!("the input is UTF-16; {remedy}"),
        ));
    }
    if start.starts_with("\u{feff}".as_bytes()) {
        input.consume("\u{feff}".len());
    }
    Ok(())
}

/// Reads the next line with its line feed. Returns `false` at the end.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, Failure> {
    line.clear();
    let read = input.by_ref().take(LONGEST).read_until(b'\n', line)?;
    if read as u64 == LONGEST && line.last() != Some(&b'\n') {
        return Err(too_long());
    }
    Ok(read > 0)
}

/// Masks the JSON document that begins with `text`.
fn document(
    rules: &Rules,
    mut text: Vec<u8>,
    input: impl BufRead,
    out: &mut impl Write,
) -> Result<(), Failure> {
    input.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(too_long());
    }
    let masked = std::str::from_utf8(&text)
        .ok()
        .and_then(|text| rules.json(text));
    let masked = masked.ok_or_else(|| {
        let remedy = "; for text whose first line only looks like it, use --format lines";
        Failure::new(FAILED, format!("the input is not JSON{remedy}"))
    })?;
    Ok(out.write_all(masked.as_bytes()).map_err(LineError::from)?)
}

fn table(rules: &Rules, input: impl BufRead, out: &mut impl Write) -> Result<(), Failure> {
    let wrong = |error: csv::Error| match error.into_kind() {
        csv::ErrorKind::Io(error) => Failure::from(LineError::from(error)),
        other => Failure::new(FAILED, format!("the input is not CSV: {other:?}")),
    };
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(input);
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(out);
    let names = reader.byte_headers().map_err(wrong)?.clone();
    // The first row of a file without names has values.
    let shown = names
        .iter()
        .map(|name| rules.line(&String::from_utf8_lossy(name)));
    writer.write_record(shown).map_err(wrong)?;
    for row in reader.byte_records() {
        let row = row.map_err(wrong)?;
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let name = String::from_utf8_lossy(names.get(column).unwrap_or_default());
            rules.cell(&name, &String::from_utf8_lossy(cell))
        });
        writer.write_record(cells).map_err(wrong)?;
    }
    writer.flush().map_err(LineError::from)?;
    Ok(())
}

fn too_long() -> Failure {
    Failure::new(FAILED, "a line or document is longer than 64 MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(format: Option<Format>, input: &str) -> Result<String, Failure> {
        let rules = Rules::new(["nickname"], &["ord-[0-9]+".to_owned()]).unwrap();
        let mut out = Vec::new();
        mask(&rules, format, input.as_bytes(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn each_line_is_json_or_text() {
        let input = "{\"email\":\"a@b.example\",\"n\":1}\nto a@b.example of ord-17\nnickname=x y=2";
        let expected = "{\"email\":\"***\",\"n\":1}\nto *** of ***\nnickname=*** y=2";
        assert_eq!(masked(None, input).unwrap(), expected);
    }

    #[test]
    fn a_document_over_several_lines_is_recognized_and_what_is_cut_off_is_not_printed() {
        let whole = "{\n  \"card\": 4111111111111111,\n  \"n\": 1\n}\n";
        let expected = "{\n  \"card\": \"***\",\n  \"n\": 1\n}\n";
        assert_eq!(masked(None, whole).unwrap(), expected);
        for cut in [
            "{\n  \"card\": 4111111111111111,\n",
            "[{\"email\": \"a@b.ex",
        ] {
            assert_eq!(masked(None, cut).unwrap_err().code, FAILED, "{cut}");
            assert_eq!(
                masked(Some(Format::Json), cut).unwrap_err().code,
                FAILED,
                "{cut}"
            );
        }
    }

    #[test]
    fn columns_are_masked_by_their_names_and_cells_by_what_they_contain() {
        let input = "id,Customer Name,note\n1,\"Ann, Lee\",\"mail\na@b.example\"\n2,Bo\n";
        let expected = "id,Customer Name,note\n1,***,\"mail\n***\"\n2,***\n";
        assert_eq!(masked(Some(Format::Csv), input).unwrap(), expected);
    }

    #[test]
    fn the_first_row_is_masked_even_if_it_has_no_names() {
        let shown = masked(Some(Format::Csv), "1,a@b.example\n2,ord-7\n");
        assert_eq!(shown.unwrap(), "1,***\n2,***\n");
    }

    #[test]
    fn what_is_before_the_first_line_does_not_hide_it() {
        let input = "\u{feff}\n \r\n{\n\"address\": {\n\"a\": 1}}";
        assert_eq!(
            masked(None, input).unwrap(),
            "\n \r\n{\n\"address\": \"***\"}"
        );
        let json = masked(Some(Format::Json), "\u{feff}{\"pin\":1}");
        assert_eq!(json.unwrap(), "{\"pin\":\"***\"}");
        let rules = Rules::new([""; 0], &[]).unwrap();
        for format in [None, Some(Format::Json), Some(Format::Csv)] {
            let wide = &b"\xff\xfep\0i\0n\0=\x001\0"[..];
            let refused = mask(&rules, format, wide, &mut Vec::<u8>::new());
            assert_eq!(refused.unwrap_err().code, FAILED);
        }
    }

    #[test]
    fn bytes_that_are_no_text_do_not_end_it() {
        let rules = Rules::new([""; 0], &[]).unwrap();
        let mut out = Vec::new();
        mask(&rules, None, &b"\xff pin=1\n\0"[..], &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\u{fffd} pin=***\n\0");
    }
}
