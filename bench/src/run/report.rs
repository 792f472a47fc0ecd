//! Report of the measurements, for the terminal and for `RESULTS.md`.
//!
//! A series contains one figure per round. The report shows its median, minimum and maximum. A
//! ratio is computed for each round, from two figures of the same round.

use std::fmt::{self, Write as _};

use super::plot::{Picture, Plot};

/// A figure in all rounds.
#[derive(Clone, Debug)]
pub(super) struct Series {
    name: String,
    unit: Unit,
    values: Vec<f64>,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A rate per second.
    PerSecond,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Mebibytes.
    Mebibytes,
    /// A number of things.
    Count,
    /// A figure divided by another.
    Ratio,
    /// Hundredths of another figure.
    Percent,
}

impl Unit {
    /// The unit as text, for the axis of a plot; empty for a number of things.
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Self::PerSecond => "per second",
            Self::Millis => "ms",
            Self::Micros => "µs",
            Self::Mebibytes => "MiB",
            Self::Count => "",
            Self::Ratio => "x",
            Self::Percent => "%",
        }
    }
}

impl Series {
    /// A series without rounds.
    pub(super) fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self {
            name: name.into(),
            unit,
            values: Vec::new(),
        }
    }

    /// One series divided by another, round by round.
    pub(super) fn ratio(name: impl Into<String>, over: &Self, under: &Self) -> Self {
        let values = over
            .values
            .iter()
            .zip(&under.values)
            .map(|(a, b)| a / b)
            .collect();
        Self {
            name: name.into(),
            unit: Unit::Ratio,
            values,
        }
    }

    /// The name of the figure.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The unit of the figure.
    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// The figures of all rounds.
    pub(super) fn values(&self) -> &[f64] {
        &self.values
    }

    /// Adds the figure of a round.
    pub(super) fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// The median; NaN without rounds.
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        match (sorted.get(sorted.len() / 2), sorted.len() % 2) {
            (Some(upper), 0) => f64::midpoint(sorted[sorted.len() / 2 - 1], *upper),
            (Some(middle), _) => *middle,
            (None, _) => f64::NAN,
        }
    }

    /// The smallest figure.
    pub(super) fn min(&self) -> f64 {
        self.values.iter().copied().fold(f64::NAN, f64::min)
    }

    /// The largest figure.
    pub(super) fn max(&self) -> f64 {
        self.values.iter().copied().fold(f64::NAN, f64::max)
    }
}

/// A figure with its unit, for printing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure(pub(super) f64, pub(super) Unit);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, unit) = *self;
        match unit {
            Unit::PerSecond => write!(f, "{}/s", grouped(value, 0)),
            Unit::Millis => write!(f, "{value:.2} ms"),
            Unit::Micros => write!(f, "{value:.2} µs"),
            Unit::Mebibytes => write!(f, "{value:.1} MiB"),
            Unit::Count => f.write_str(&grouped(value, 0)),
            Unit::Ratio => write!(f, "{value:.2} x"),
            Unit::Percent => write!(f, "{value:.0} %"),
        }
    }
}

/// A number with `decimals` digits after the point, and groups of three digits before it.
pub(super) fn grouped(value: f64, decimals: usize) -> String {
    let digits = format!("{value:.decimals$}");
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index < whole && (whole - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A target, and whether it is met.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    target: &'static str,
    what: String,
    wanted: String,
    measured: String,
    met: bool,
}

impl Verdict {
    /// The figure is to be at least `least`.
    pub(super) fn at_least(target: &'static str, series: &Series, least: f64) -> Self {
        let bound = format!(">= {}", Figure(least, series.unit));
        Self::of(target, series, bound, series.median() >= least)
    }

    /// The figure is to be `most` or less.
    pub(super) fn at_most(target: &'static str, series: &Series, most: f64) -> Self {
        let bound = format!("<= {}", Figure(most, series.unit));
        Self::of(target, series, bound, series.median() <= most)
    }

    /// The figure is to stay below `bound`.
    pub(super) fn below(target: &'static str, series: &Series, bound: f64) -> Self {
        let wanted = format!("< {}", Figure(bound, series.unit));
        Self::of(target, series, wanted, series.median() < bound)
    }

    /// The figure is to be `exact` in every round.
    pub(super) fn always(target: &'static str, series: &Series, exact: f64) -> Self {
        let met = !series.values.is_empty()
            && series
                .values
                .iter()
                .all(|value| (value - exact).abs() < 0.5);
        Self::of(target, series, Figure(exact, series.unit).to_string(), met)
    }

    fn of(target: &'static str, series: &Series, wanted: String, met: bool) -> Self {
        let measured = Figure(series.median(), series.unit).to_string();
        Self {
            target,
            what: series.name.clone(),
            wanted,
            measured,
            met,
        }
    }
}

/// One measurement: its description and results.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    /// The name for `--only`.
    pub(super) name: &'static str,
    /// The heading.
    pub(super) title: String,
    /// The description of the method.
    pub(super) how: String,
    /// The figures.
    pub(super) series: Vec<Series>,
    /// Plots of the figures, which are drawn when the section is complete.
    pub(super) plots: Vec<Plot>,
    /// The plots that are drawn.
    pub(super) pictures: Vec<Picture>,
    /// A separate table, for figures that are not medians over rounds.
    pub(super) table: String,
    /// The targets.
    pub(super) verdicts: Vec<Verdict>,
}

impl Section {
    /// Draws the plots and returns why others cannot be drawn. `measured` is written below each.
    pub(super) fn draw(&mut self, measured: &str) -> Vec<anyhow::Error> {
        let mut refused = Vec::new();
        for plot in &self.plots {
            match plot.picture(self.name, measured) {
                Ok(picture) => self.pictures.push(picture),
                Err(error) => refused.push(error),
            }
        }
        refused
    }

    fn figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.series.is_empty() {
            return Ok(());
        }
        writeln!(f, "| figure | median | min | max |\n|---|---:|---:|---:|")?;
        for series in &self.series {
            let figure = |value| Figure(value, series.unit);
            let (median, min, max) = (series.median(), series.min(), series.max());
            writeln!(
                f,
                "| {} | {} | {} | {} |",
                series.name,
                figure(median),
                figure(min),
                figure(max)
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n\n{}", self.title, self.how)?;
        writeln!(f, "Repeat with: `{COMMAND} --only {}`.\n", self.name)?;
        f.write_str(&self.table)?;
        self.figures(f)?;
        for picture in &self.pictures {
            writeln!(f, "\n{picture}")?;
        }
        Ok(())
    }
}

/// The command of the harness.
pub(super) const COMMAND: &str = "cargo run --profile dist -p bench -- run";

/// The table of targets; nothing without targets.
pub(super) fn summary(sections: &[Section]) -> String {
    if sections.iter().all(|section| section.verdicts.is_empty()) {
        return String::new();
    }
    let mut text = String::from(
        "| target | figure | wanted | measured (median) | | `--only` |\n|---|---|---:|---:|---|---|\n",
    );
    for section in sections {
        for verdict in &section.verdicts {
            let Verdict {
                target,
                what,
                wanted,
                measured,
                met,
            } = verdict;
            let word = if *met { "PASS" } else { "**short**" };
            let _ = writeln!(
                text,
                "| {target} | {what} | {wanted} | {measured} | {word} | `{}` |",
                section.name
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        Series {
            name: "rate".to_owned(),
            unit: Unit::PerSecond,
            values: values.to_vec(),
        }
    }

    #[test]
    fn the_median_lies_in_the_middle_and_between_two() {
        assert!((series(&[3.0, 1.0, 2.0]).median() - 2.0).abs() < 1e-9);
        assert!((series(&[4.0, 1.0, 2.0, 3.0]).median() - 2.5).abs() < 1e-9);
        assert!(series(&[]).median().is_nan());
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let ratio = Series::ratio("ratio", &series(&[10.0, 30.0]), &series(&[10.0, 10.0]));
        assert!((ratio.min() - 1.0).abs() < 1e-9);
        assert!((ratio.max() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_target_is_judged_by_the_median_and_shown_with_its_unit() {
        let verdict = Verdict::at_least("5", &series(&[14_000.0, 16_000.0, 15_000.0]), 15_000.0);
        assert!(verdict.met);
        assert_eq!(
            (verdict.wanted.as_str(), verdict.measured.as_str()),
            (">= 15,000/s", "15,000/s")
        );
        assert!(!Verdict::below("12", &series(&[2.0]), 2.0).met);
        assert!(Verdict::at_most("2", &series(&[2.0]), 2.0).met);
        assert!(!Verdict::at_most("2", &series(&[2.1]), 2.0).met);
        assert!(!Verdict::always("4", &series(&[1.0, 2.0]), 1.0).met);
    }

    #[test]
    fn a_series_without_rounds_meets_no_target() {
        assert!(!Verdict::at_least("3", &series(&[]), 0.0).met);
        assert!(!Verdict::below("3", &series(&[]), 1e9).met);
        assert!(!Verdict::always("3", &series(&[]), 1.0).met);
    }

    #[test]
    fn digits_are_grouped_by_three() {
        for (value, decimals, text) in [
            (0.0, 0, "0"),
            (999.0, 0, "999"),
            (1_000.0, 0, "1,000"),
            (1e7, 0, "10,000,000"),
            (0.125, 3, "0.125"),
            (12_345.5, 1, "12,345.5"),
        ] {
            assert_eq!(grouped(value, decimals), text);
        }
    }
}
