//! The SVG of a plot: a file without scripts and fonts, in the colours of the diagrams in `docs`.
//!
//! Lines differ in colour, dashes and markers. A dark variant of the colours is part of the file.
//! The title and the description contain the figures for screen readers.

use std::fmt::{self, Formatter};

use super::{Line, Plot, Point, axis::Range};

/// The first line of a file, by which the harness recognizes its plots.
pub(super) const MARK: &str = "<!-- Written by bench run. -->";

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
/// Space on the left, for the labels of the vertical axis.
const LEFT: f64 = 96.0;
const RIGHT: f64 = WIDTH - 48.0;
const BOTTOM: f64 = HEIGHT - 84.0;
/// The place of the first row of the legend.
const LEGEND: f64 = 56.0;
const ROW: f64 = 22.0;
/// The dashes of each line; the first one is continuous.
const DASHES: [&str; 4] = ["", "7 4", "2 4", "10 4 2 4"];

const STYLE: &str = "\
<style>
  text { font-family: system-ui, -apple-system, \"Segoe UI\", Roboto, \"Helvetica Neue\", Arial, \
sans-serif; font-size: 13px }
  .bg{fill:#ffffff}
  .t{fill:#1f2328}
  .m{fill:#59636e}
  .g{stroke:#818b98}
  .s0{stroke:#0969da}
  .s1{stroke:#cf222e}
  .s2{stroke:#1a7f37}
  .s3{stroke:#9a6700}
  .f0{fill:#0969da}
  .f1{fill:#cf222e}
  .f2{fill:#1a7f37}
  .f3{fill:#9a6700}
  @media (prefers-color-scheme: dark) {
    .bg{fill:#0d1117}
    .t{fill:#e6edf3}
    .m{fill:#9198a1}
    .g{stroke:#656c76}
    .s0{stroke:#4493f8}
    .s1{stroke:#f85149}
    .s2{stroke:#3fb950}
    .s3{stroke:#d29922}
    .f0{fill:#4493f8}
    .f1{fill:#f85149}
    .f2{fill:#3fb950}
    .f3{fill:#d29922}
  }
</style>";

/// A plot with the ranges of its axes. Every value has a place on its axis.
pub(super) struct Drawing<'a> {
    plot: &'a Plot,
    measured: &'a str,
    across: Range,
    up: Range,
    /// The upper end of the vertical axis.
    top: f64,
}

impl<'a> Drawing<'a> {
    /// Finds the ranges of the axes.
    pub(super) fn new(plot: &'a Plot, measured: &'a str) -> Self {
        let points = || plot.lines.iter().flat_map(|line| &line.points);
        let (left, right) = bounds(points().map(|point| point.at));
        let (low, high) = bounds(points().flat_map(Point::heights));
        let rows = if plot.lines.len() > 2 { 2.0 } else { 1.0 };
        Self {
            across: plot.across.range(left, right),
            up: plot.up.range(low, high),
            top: LEGEND + rows * ROW,
            plot,
            measured,
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * self.across.place(value)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - self.top) * self.up.place(value)
    }

    fn head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let title = escaped(&self.plot.title);
        writeln!(
            f,
            "{MARK}\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-labelledby=\"title desc\">"
        )?;
        writeln!(f, "<title id=\"title\">{title}</title>")?;
        let description = escaped(&self.plot.description());
        writeln!(f, "<desc id=\"desc\">{description}</desc>\n{STYLE}")?;
        writeln!(
            f,
            "<rect class=\"bg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\"/>"
        )?;
        writeln!(
            f,
            "<text class=\"t\" x=\"20\" y=\"30\" font-weight=\"600\" \
             style=\"font-size:14px\">{title}</text>"
        )
    }

    fn legend(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let places = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)];
        for ((number, line), (column, row)) in self.plot.lines.iter().enumerate().zip(places) {
            let x = LEFT + column * (RIGHT - LEFT) / 2.0;
            let y = LEGEND + row * ROW;
            stroke(
                f,
                number,
                &format!("M{x:.1} {y:.1} L{:.1} {y:.1}", x + 36.0),
            )?;
            marker(f, number, x + 18.0, y)?;
            let name = escaped(&line.name);
            let (x, y) = (x + 46.0, y + 4.5);
            writeln!(
                f,
                "<text class=\"t\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>"
            )?;
        }
        Ok(())
    }

    fn axes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let top = self.top;
        for tick in &self.up.ticks {
            let y = self.y(tick.value);
            grid(f, &format!("M{LEFT:.1} {y:.1} L{RIGHT:.1} {y:.1}"))?;
            let (x, y) = (LEFT - 8.0, y + 4.5);
            label(f, "m", (x, y), "end", &tick.label)?;
        }
        for tick in &self.across.ticks {
            let x = self.x(tick.value);
            grid(f, &format!("M{x:.1} {top:.1} L{x:.1} {BOTTOM:.1}"))?;
            label(f, "m", (x, BOTTOM + 20.0), "middle", &tick.label)?;
        }
        writeln!(
            f,
            "<path class=\"g\" d=\"M{LEFT:.1} {top:.1} L{LEFT:.1} {BOTTOM:.1} L{RIGHT:.1} \
             {BOTTOM:.1}\" fill=\"none\" stroke-width=\"1.5\"/>"
        )?;
        let middle = LEFT.midpoint(RIGHT);
        let name = self.plot.across.label();
        label(f, "t", (middle, BOTTOM + 42.0), "middle", &name)?;
        let (x, y) = (24.0, top.midpoint(BOTTOM));
        let name = escaped(&self.plot.up.label());
        writeln!(
            f,
            "<text class=\"t\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 {x:.1} {y:.1})\">{name}</text>"
        )
    }

    fn line(&self, f: &mut Formatter<'_>, number: usize, line: &Line) -> fmt::Result {
        let places = line.points.iter().map(|point| {
            let (x, y) = (self.x(point.at), self.y(point.median));
            format!("{x:.1} {y:.1}")
        });
        let places: Vec<_> = places.collect();
        if places.len() > 1 {
            stroke(f, number, &format!("M{}", places.join(" L")))?;
        }
        for point in &line.points {
            let x = self.x(point.at);
            if point.min < point.max {
                let (low, high) = (self.y(point.min), self.y(point.max));
                let (left, right) = (x - 4.0, x + 4.0);
                writeln!(
                    f,
                    "<path class=\"s{number}\" d=\"M{x:.1} {low:.1} L{x:.1} {high:.1} \
                     M{left:.1} {low:.1} L{right:.1} {low:.1} \
                     M{left:.1} {high:.1} L{right:.1} {high:.1}\" fill=\"none\"/>"
                )?;
            }
            marker(f, number, x, self.y(point.median))?;
        }
        Ok(())
    }
}

impl fmt::Display for Drawing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        self.legend(f)?;
        self.axes(f)?;
        for (number, line) in self.plot.lines.iter().enumerate() {
            self.line(f, number, line)?;
        }
        let measured = escaped(self.measured);
        let y = HEIGHT - 16.0;
        writeln!(
            f,
            "<text class=\"m\" x=\"20\" y=\"{y}\" style=\"font-size:12px\">\
             Medians, with bars from minimum to maximum. {measured}</text>\n</svg>"
        )
    }
}

/// The smallest and the largest value.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| {
        (least.min(value), most.max(value))
    })
}

/// The line with this number along a path.
fn stroke(f: &mut Formatter<'_>, number: usize, path: &str) -> fmt::Result {
    let dashes = match DASHES[number] {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    };
    writeln!(
        f,
        "<path class=\"s{number}\" d=\"{path}\" fill=\"none\" stroke-width=\"2\"{dashes}/>"
    )
}

/// The marker of the line with this number: a circle, a square, a triangle or a diamond.
fn marker(f: &mut Formatter<'_>, number: usize, x: f64, y: f64) -> fmt::Result {
    let (left, right) = (x - 5.0, x + 5.0);
    let (above, below) = (y - 5.0, y + 5.0);
    match number {
        0 => writeln!(
            f,
            "<circle class=\"f0\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"
        ),
        1 => writeln!(
            f,
            "<rect class=\"f1\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"/>",
            x - 4.0,
            y - 4.0
        ),
        2 => writeln!(
            f,
            "<path class=\"f2\" d=\"M{x:.1} {above:.1} L{right:.1} {below:.1} L{left:.1} \
             {below:.1} z\"/>"
        ),
        _ => writeln!(
            f,
            "<path class=\"f3\" d=\"M{x:.1} {above:.1} L{right:.1} {y:.1} L{x:.1} {below:.1} \
             L{left:.1} {y:.1} z\"/>"
        ),
    }
}

fn grid(f: &mut Formatter<'_>, path: &str) -> fmt::Result {
    writeln!(
        f,
        "<path class=\"g\" d=\"{path}\" fill=\"none\" stroke-opacity=\"0.3\"/>"
    )
}

fn label(
    f: &mut Formatter<'_>,
    class: &str,
    (x, y): (f64, f64),
    anchor: &str,
    text: &str,
) -> fmt::Result {
    let text = escaped(text);
    writeln!(
        f,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    )
}

/// The text as content of an element or of an attribute. Control characters, which XML does not
/// allow, become spaces.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}
