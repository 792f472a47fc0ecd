//! Tests of plots: the whole file, its validity as XML, and the values that are refused.

use expect_test::expect_file;

use super::{super::report::Unit, svg::escaped, *};

const MEASURED: &str = "Sat, 21 Nov 2026 08:02:34 GMT, commit e83b325";

fn series(values: &[f64]) -> Series {
    let mut series = Series::new("latency", Unit::Millis);
    for value in values {
        series.push(*value);
    }
    series
}

fn line(name: &str, points: &[(f64, &[f64])]) -> Line {
    let points = points.iter().map(|(at, values)| (*at, series(values)));
    let points: Vec<_> = points.collect();
    Line::new(name, points.iter().map(|(at, series)| (*at, series)))
}

fn plot(scale: Scale, lines: Vec<Line>) -> Plot {
    Plot {
        name: "",
        title: "Latency of a write as the load grows, SQLite".to_owned(),
        across: Axis {
            name: "share of the maximum rate",
            unit: Unit::Percent,
            scale: Scale::Linear,
        },
        up: Axis {
            name: "latency",
            unit: Unit::Millis,
            scale,
        },
        lines,
    }
}

fn sample() -> Plot {
    let median = line(
        "p50",
        &[
            (10.0, &[0.49, 0.49, 0.59]),
            (50.0, &[0.95, 0.97, 0.98]),
            (90.0, &[4.51, 5.44, 5.78]),
        ],
    );
    let tail = line(
        "p99",
        &[
            (90.0, &[14.12, 39.39, 54.46]),
            (10.0, &[3.05, 3.15, 3.18]),
            (50.0, &[6.53, 6.73, 11.40]),
        ],
    );
    plot(Scale::Log, vec![median, tail])
}

#[test]
fn the_whole_file_is_as_expected() {
    let svg = sample().svg(MEASURED).unwrap();
    elements(&svg);
    expect_file!["golden.svg"].assert_eq(&svg);
}

#[test]
fn four_lines_have_different_dashes_and_markers() {
    let lines = ["one", "two", "three", "four"].map(|name| line(name, &[(10.0, &[1.0])]));
    let svg = plot(Scale::Linear, lines.to_vec()).svg(MEASURED).unwrap();
    let seen = elements(&svg);
    let count = |name: &str| seen.iter().filter(|it| *it == name).count();
    // The legend and the point; the background is a rectangle too.
    assert_eq!((count("circle"), count("rect")), (2, 3));
    for dashes in ["7 4", "2 4", "10 4 2 4"] {
        let dashes = format!("stroke-dasharray=\"{dashes}\"");
        assert_eq!(svg.matches(&dashes).count(), 1, "{svg}");
    }
}

#[test]
fn a_file_has_light_and_dark_colours_a_title_and_a_description_and_loads_nothing() {
    let svg = sample().svg(MEASURED).unwrap();
    let seen = elements(&svg);
    assert_eq!(&seen[..4], &["svg", "title", "desc", "style"]);
    assert!(svg.contains("prefers-color-scheme: dark"), "{svg}");
    assert!(svg.contains("p50: 0.49 ms at 10 %, 0.97 ms at 50 %, 5.44 ms at 90 %."));
    assert!(svg.contains(MEASURED), "{svg}");
    assert!(!seen.iter().any(|name| name == "script"), "{svg}");
    assert!(!svg.contains("href") && !svg.contains("url("), "{svg}");
}

#[test]
fn text_is_escaped() {
    assert_eq!(
        escaped("a < b & \"c\" > 'd'\u{7}"),
        "a &lt; b &amp; &quot;c&quot; &gt; &apos;d&apos; "
    );
    let mut plot = plot(
        Scale::Linear,
        vec![line("<p50> & \"more\"", &[(1.0, &[1.0])])],
    );
    plot.title = "a </title> & 'b'".to_owned();
    elements(&plot.svg("<now>").unwrap());
}

#[test]
fn one_point_is_a_marker_without_a_line_and_without_a_bar() {
    let plot = plot(Scale::Log, vec![line("p50", &[(10.0, &[3.0])])]);
    let svg = plot.svg(MEASURED).unwrap();
    assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
    // The line of the legend.
    assert_eq!(svg.matches("class=\"s0\"").count(), 1, "{svg}");
}

#[test]
fn zero_and_equal_values_are_drawn() {
    for values in [[0.0, 0.0], [3.0, 3.0]] {
        let points = [(10.0, &values[..]), (10.0, &values[..])];
        let svg = plot(Scale::Linear, vec![line("p50", &points)]).svg(MEASURED);
        let svg = svg.unwrap();
        elements(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn a_value_without_a_place_on_the_axis_is_refused() {
    for (scale, value) in [
        (Scale::Linear, f64::NAN),
        (Scale::Linear, f64::INFINITY),
        (Scale::Linear, -1.0),
        (Scale::Log, f64::NAN),
        (Scale::Log, 0.0),
    ] {
        // A NaN of one round is not hidden by the median.
        let values = [1.0, 1.0, value];
        let points = [(10.0, &values[..])];
        let drawn = plot(scale, vec![line("p50", &points)]).svg(MEASURED);
        let error = drawn.expect_err("it has no place").to_string();
        assert!(error.contains("p50: latency: expected a number"), "{error}");
    }
    let drawn = plot(Scale::Linear, vec![line("p50", &[(f64::NAN, &[1.0])])]).svg(MEASURED);
    let error = drawn.expect_err("it has no place").to_string();
    assert!(error.contains("p50: share of the maximum rate"), "{error}");
}

#[test]
fn a_plot_without_data_is_refused() {
    let error = |lines| {
        let picture = plot(Scale::Linear, lines).picture("capacity", MEASURED);
        format!("{:#}", picture.expect_err("it has no data"))
    };
    assert_eq!(
        error(vec![]),
        "cannot draw capacity.svg: expected 1 to 4 lines, got 0"
    );
    assert_eq!(
        error(vec![line("p50", &[])]),
        "cannot draw capacity.svg: p50: expected a point"
    );
    let without_rounds = error(vec![line("p50", &[(10.0, &[])])]);
    assert!(without_rounds.contains("got NaN"), "{without_rounds}");
    let five = vec![line("p50", &[(10.0, &[1.0])]); 5];
    assert!(error(five).contains("got 5"));
}

#[test]
fn a_picture_has_the_name_of_its_measurement_and_a_text() {
    let mut plot = sample();
    let picture = plot.picture("capacity", MEASURED).unwrap();
    assert_eq!(picture.file, "capacity.svg");
    assert_eq!(
        picture.alt,
        "Latency of a write as the load grows, SQLite: line chart of p50; p99. The figures are in \
         the table above."
    );
    plot.name = "memory";
    let picture = plot.picture("backlog", MEASURED).unwrap();
    assert_eq!(picture.file, "backlog-memory.svg");
}

#[test]
fn a_document_that_is_not_well_formed_is_found() {
    for document in [
        "<a>",
        "<a></b>",
        "<a b=c/>",
        "<a>& </a>",
        "<a b=\"<\"/>",
        "<a/>\n<!-- -- -->",
    ] {
        let parsed = std::panic::catch_unwind(|| elements(document));
        assert!(parsed.is_err(), "{document}");
    }
    assert_eq!(elements("<!-- c -->\n<a b=\"&lt;\"><c/>d</a>"), ["a", "c"]);
}

/// The names of the elements of a document, in order. Panics if the document is not well-formed
/// XML, or uses more of XML than a plot does.
#[track_caller]
fn elements(document: &str) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    let mut rest = document;
    while let Some((text, markup)) = rest.split_once('<') {
        check_text(text);
        if let Some(comment) = markup.strip_prefix("!--") {
            let (_, after) = comment.split_once("--").expect("a comment ends");
            rest = after.strip_prefix('>').expect("a comment contains no --");
            continue;
        }
        let (tag, after) = markup.split_once('>').expect("a tag ends");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "in {document}");
            continue;
        }
        let (tag, is_closed) = match tag.strip_suffix('/') {
            Some(tag) => (tag, true),
            None => (tag, false),
        };
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        check_attributes(attributes);
        seen.push(name.to_owned());
        if !is_closed {
            open.push(name);
        }
    }
    check_text(rest);
    assert_eq!(open, Vec::<&str>::new(), "in {document}");
    seen
}

#[track_caller]
fn check_attributes(attributes: &str) {
    let mut rest = attributes.trim();
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect("a value is quoted");
        let is_name = |it: char| it.is_ascii_alphabetic() || it == '-';
        assert!(name.chars().all(is_name), "{name}");
        assert!(!seen.contains(&name), "{name} is repeated");
        seen.push(name);
        let (value, after) = after.split_once('"').expect("a value ends");
        check_text(value);
        rest = after.trim_start();
    }
}

#[track_caller]
fn check_text(text: &str) {
    assert!(!text.contains('<'), "{text}");
    for part in text.split('&').skip(1) {
        let (entity, _) = part.split_once(';').unwrap_or_default();
        assert!(
            ["amp", "lt", "gt", "quot", "apos"].contains(&entity),
            "&{part}"
        );
    }
}
