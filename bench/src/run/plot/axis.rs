//! Axes of a plot: their range, their ticks and the labels of these.
//!
//! A linear axis starts at zero. A logarithmic axis starts and ends at 1, 2 or 5 times a power of
//! ten. The labels have the digits that distinguish them, grouped as in the tables.

use super::super::report::{Unit, grouped};

/// The smallest value of a logarithmic axis.
pub(super) const LEAST: f64 = 1e-9;
/// The largest value of an axis.
pub(super) const MOST: f64 = 1e15;
/// Number of ticks for which there is room.
const TICKS_MAX: usize = 9;
/// Number of parts into which the largest value of a linear axis is divided, at most.
const PARTS_MAX: f64 = 5.0;
/// Relative error up to which a value counts as equal to a tick.
const SLACK: f64 = 1e-9;

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum Scale {
    /// Equal distances are equal differences.
    Linear,
    /// Equal distances are equal ratios.
    Log,
}

/// A direction of a plot: the name and the unit of its values, and the scale.
#[derive(Clone, Copy, Debug)]
pub(in crate::run) struct Axis {
    pub(in crate::run) name: &'static str,
    pub(in crate::run) unit: Unit,
    pub(in crate::run) scale: Scale,
}

impl Axis {
    /// The name with the unit.
    pub(super) fn label(&self) -> String {
        match self.unit.symbol() {
            "" => self.name.to_owned(),
            symbol => format!("{} ({symbol})", self.name),
        }
    }

    /// The range and the ticks for values from `least` to `most`, which are in the bounds above.
    pub(super) fn range(&self, least: f64, most: f64) -> Range {
        let ticks = match self.scale {
            Scale::Linear => linear(most),
            Scale::Log => log(least, most),
        };
        let [from, to] = ticks.range;
        Range {
            scale: self.scale,
            from,
            to,
            ticks: ticks.marked,
        }
    }
}

/// The range of an axis, and its ticks.
#[derive(Clone, Debug)]
pub(super) struct Range {
    scale: Scale,
    from: f64,
    to: f64,
    /// The ticks in ascending order.
    pub(super) ticks: Vec<Tick>,
}

impl Range {
    /// The place of a value: 0 at the start of the axis, 1 at its end.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value / self.from).ln() / (self.to / self.from).ln(),
        }
    }
}

/// A value that is marked on an axis, with its label.
#[derive(Clone, Debug)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) label: String,
}

/// The first and the last value of an axis, and its ticks.
struct Ticks {
    range: [f64; 2],
    marked: Vec<Tick>,
}

/// A number that is easy to read: 1, 2 or 5 times a power of ten.
#[derive(Clone, Copy, Debug)]
struct Step {
    value: f64,
    /// Number of digits after the decimal point.
    decimals: usize,
    is_power: bool,
}

impl Step {
    fn tick(self) -> Tick {
        Tick {
            value: self.value,
            label: grouped(self.value, self.decimals),
        }
    }
}

/// All steps within the bounds, in ascending order.
fn steps() -> Vec<Step> {
    let steps = (-9..=15).flat_map(|exponent: i32| {
        [1.0, 2.0, 5.0].map(|digit: f64| Step {
            value: digit * 10_f64.powi(exponent),
            decimals: usize::try_from(-exponent).unwrap_or(0),
            is_power: digit < 2.0,
        })
    });
    steps.collect()
}

/// An axis from zero to at least `most`.
fn linear(most: f64) -> Ticks {
    // Without a value above zero, any length will do.
    let most = if most > LEAST { most } else { 1.0 };
    let steps = steps();
    let fits = |step: &&Step| step.value >= most / PARTS_MAX * (1.0 - SLACK);
    let step = steps.iter().find(fits).unwrap_or(&steps[0]);
    let mut marked = Vec::new();
    let mut last = 0.0;
    for number in 0_u32.. {
        last = f64::from(number) * step.value;
        marked.push(Tick {
            value: last,
            label: grouped(last, step.decimals),
        });
        if last >= most * (1.0 - SLACK) {
            break;
        }
    }
    Ticks {
        range: [0.0, last],
        marked,
    }
}

/// An axis from at most `least` to at least `most`. If there is no room for all steps, the powers
/// of ten are marked, or some of them.
fn log(least: f64, most: f64) -> Ticks {
    let steps = steps();
    let bottom = steps
        .iter()
        .rposition(|step| step.value <= least * (1.0 + SLACK));
    let top = steps
        .iter()
        .position(|step| step.value >= most * (1.0 - SLACK));
    let end = steps.len() - 1;
    let (mut bottom, mut top) = (bottom.unwrap_or(0), top.unwrap_or(end));
    if bottom == top {
        bottom = bottom.saturating_sub(1);
        top = (top + 1).min(end);
    }
    let within = &steps[bottom..=top];
    let marked: Vec<Tick> = if within.len() <= TICKS_MAX {
        within.iter().map(|step| step.tick()).collect()
    } else {
        let powers: Vec<&Step> = within.iter().filter(|step| step.is_power).collect();
        let every = powers.len().div_ceil(TICKS_MAX);
        let marked = powers.into_iter().step_by(every.max(1));
        marked.map(|step| step.tick()).collect()
    };
    Ticks {
        range: [steps[bottom].value, steps[top].value],
        marked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, least: f64, most: f64) -> Vec<String> {
        let axis = Axis {
            name: "latency",
            unit: Unit::Millis,
            scale,
        };
        let range = axis.range(least, most);
        range.ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn a_linear_axis_starts_at_zero_and_its_ticks_are_1_2_or_5_apart() {
        for (most, expected) in [
            (90.0, &["0", "20", "40", "60", "80", "100"][..]),
            (100.0, &["0", "20", "40", "60", "80", "100"][..]),
            (0.3, &["0.0", "0.1", "0.2", "0.3"][..]),
            (2.1, &["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"][..]),
            (
                323_413.0,
                &["0", "100,000", "200,000", "300,000", "400,000"][..],
            ),
        ] {
            assert_eq!(labels(Scale::Linear, 0.0, most), expected, "{most}");
        }
    }

    #[test]
    fn a_linear_axis_has_a_length_even_if_every_value_is_zero() {
        let expected = ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"];
        assert_eq!(labels(Scale::Linear, 0.0, 0.0), expected);
    }

    #[test]
    fn a_short_logarithmic_axis_has_all_steps_and_a_long_one_the_powers_of_ten() {
        for (least, most, expected) in [
            (0.49, 3.15, &["0.2", "0.5", "1", "2", "5"][..]),
            (0.02, 0.1, &["0.02", "0.05", "0.1"][..]),
            (
                1e4,
                1e7,
                &["10,000", "100,000", "1,000,000", "10,000,000"][..],
            ),
            (3.0, 7_000.0, &["10", "100", "1,000", "10,000"][..]),
        ] {
            let found = labels(Scale::Log, least, most);
            assert_eq!(found, expected, "{least} to {most}");
        }
        assert!(labels(Scale::Log, LEAST, MOST).len() <= TICKS_MAX);
    }

    #[test]
    fn equal_values_are_inside_of_a_logarithmic_axis() {
        assert_eq!(labels(Scale::Log, 3.0, 3.0), ["2", "5"]);
        assert_eq!(labels(Scale::Log, 5.0, 5.0), ["2", "5", "10"]);
    }

    #[test]
    fn a_decade_is_as_long_as_the_next_one() {
        let axis = Axis {
            name: "events",
            unit: Unit::Count,
            scale: Scale::Log,
        };
        let range = axis.range(1e4, 1e6);
        for (value, place) in [(1e4, 0.0), (1e5, 0.5), (1e6, 1.0)] {
            assert!((range.place(value) - place).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn the_label_names_the_unit_if_there_is_one() {
        let label = |unit| {
            let scale = Scale::Linear;
            let name = "events";
            Axis { name, unit, scale }.label()
        };
        assert_eq!(label(Unit::Count), "events");
        assert_eq!(label(Unit::PerSecond), "events (per second)");
    }
}
