//! Line charts of the results, as SVG files beside `RESULTS.md`.
//!
//! A measurement adds plots of figures that are also in its table. A point is a median over the
//! rounds, with a bar from the minimum to the maximum. A plot is drawn only from figures of this
//! run; one with a value that cannot be drawn, such as NaN, is refused as a whole.

mod axis;
mod svg;
mod picture;
#[cfg(test)]
mod tests;

use anyhow::{Context as _, ensure};

use super::report::{Figure, Series};
use axis::{LEAST, MOST};

pub(super) use axis::{Axis, Scale};
pub(super) use picture::{Picture, write};

/// Number of lines that can be distinguished by their dashes and markers.
const LINES_MAX: usize = 4;

/// A line chart.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// Distinguishes the plots of one measurement in the names of their files. It is empty for the
    /// first one.
    pub(super) name: &'static str,
    /// The title.
    pub(super) title: String,
    /// The horizontal axis.
    pub(super) across: Axis,
    /// The vertical axis.
    pub(super) up: Axis,
    /// One to four lines.
    pub(super) lines: Vec<Line>,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub(super) struct Line {
    name: String,
    /// The points, from left to right.
    points: Vec<Point>,
}

/// A figure at a place of the horizontal axis.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: f64,
    median: f64,
    min: f64,
    max: f64,
}

impl Line {
    /// A line through the medians of series, each with its place on the horizontal axis.
    pub(super) fn new<'a>(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, &'a Series)>,
    ) -> Self {
        let points = points.into_iter();
        let mut points: Vec<Point> = points.map(|(at, series)| Point::new(at, series)).collect();
        points.sort_by(|left, right| left.at.total_cmp(&right.at));
        Self {
            name: name.into(),
            points,
        }
    }
}

impl Point {
    fn new(at: f64, series: &Series) -> Self {
        // Minimum and maximum pass over a NaN, and the median may do so too.
        let nan = series.values().iter().copied().find(|it| it.is_nan());
        Self {
            at,
            median: nan.unwrap_or_else(|| series.median()),
            min: series.min(),
            max: series.max(),
        }
    }

    fn heights(&self) -> [f64; 3] {
        [self.min, self.median, self.max]
    }
}

impl Plot {
    /// Draws the plot for the measurement `of`. `measured` says when and from which commit.
    pub(super) fn picture(&self, of: &str, measured: &str) -> anyhow::Result<Picture> {
        let file = match self.name {
            "" => format!("{of}.svg"),
            name => format!("{of}-{name}.svg"),
        };
        let svg = self.svg(measured);
        Ok(Picture {
            svg: svg.with_context(|| format!("cannot draw {file}"))?,
            alt: self.alt(),
            file,
        })
    }

    fn svg(&self, measured: &str) -> anyhow::Result<String> {
        let count = self.lines.len();
        ensure!(
            (1..=LINES_MAX).contains(&count),
            "expected 1 to {LINES_MAX} lines, got {count}"
        );
        for line in &self.lines {
            ensure!(!line.points.is_empty(), "{}: expected a point", line.name);
            for point in &line.points {
                drawable(&self.across, &line.name, &[point.at])?;
                drawable(&self.up, &line.name, &point.heights())?;
            }
        }
        Ok(svg::Drawing::new(self, measured).to_string())
    }

    /// The text for readers who do not see the plot.
    fn alt(&self) -> String {
        let names: Vec<_> = self.lines.iter().map(|line| line.name.as_str()).collect();
        format!(
            "{}: line chart of {}. The figures are in the table above.",
            self.title,
            names.join("; ")
        )
    }

    /// The figures as text, for the description of the file.
    fn description(&self) -> String {
        let lines = self.lines.iter().map(|line| {
            let points = line.points.iter().map(|point| {
                let height = Figure(point.median, self.up.unit);
                format!("{height} at {}", Figure(point.at, self.across.unit))
            });
            let points: Vec<_> = points.collect();
            format!("{}: {}.", line.name, points.join(", "))
        });
        let lines: Vec<_> = lines.collect();
        format!(
            "Medians of {} by {}. {}",
            self.up.name,
            self.across.name,
            lines.join(" ")
        )
    }
}

/// Checks that the values have a place on an axis.
fn drawable(along: &Axis, line: &str, values: &[f64]) -> anyhow::Result<()> {
    let (least, most) = match along.scale {
        Scale::Linear => (0.0, MOST),
        Scale::Log => (LEAST, MOST),
    };
    for value in values {
        ensure!(
            (least..=most).contains(value),
            "{line}: {}: expected a number from {least:?} to {most:e}, got {value}",
            along.name
        );
    }
    Ok(())
}
