//! Charts as SVG, rendered by the server without script or style.

use std::fmt::Write as _;

use crate::html::{Element, Html, el};

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 48.0;

/// A chart with its labels.
pub(crate) struct Chart<'a> {
    /// The title.
    pub(crate) title: &'a str,
    /// A short explanation.
    pub(crate) note: &'a str,
    /// The current value; `None` if it is not known.
    pub(crate) now: Option<String>,
    /// The maximum; `None` if no value is known.
    pub(crate) most: Option<String>,
    /// What is shown instead of the maximum if no value is known.
    pub(crate) nothing: &'a str,
    /// The start of the time axis.
    pub(crate) since: String,
    /// Values, oldest first. Unknown values leave a gap.
    pub(crate) lines: Vec<Vec<Option<f64>>>,
}

impl Chart<'_> {
    /// Renders the figure.
    pub(crate) fn draw(&self) -> Element {
        let now = self.now.as_deref().unwrap_or("–");
        let most = self.most.as_ref();
        let said = most.map_or_else(
            || {
                format!(
                    "{}: {} in the last {}",
                    self.title, self.nothing, self.since
                )
            },
            |most| {
                let (title, since) = (self.title, &self.since);
                format!("{title}: {now} now, {most} at most in the last {since}")
            },
        );
        let most = most.map_or_else(|| self.nothing.to_owned(), |most| format!("most {most}"));
        let caption = el("figcaption")
            .add(el("span").class("title").add(self.title))
            .add(el("strong").add(now))
            .add(el("span").class("soft").add(self.note));
        let axis = el("p")
            .class("axis")
            .attr("aria-hidden", "true")
            .add(el("span").add(format!("{} ago", self.since)))
            .add(el("span").add(most))
            .add(el("span").add("now"));
        el("figure")
            .class("chart")
            .add(caption)
            .add(lines(&said, &self.lines))
            .add(axis)
    }
}

/// Lines with a common scale, from zero to the maximum of all.
pub(crate) fn lines(said: &str, lines: &[Vec<Option<f64>>]) -> Element {
    let all = lines.iter().flatten().flatten();
    let most = all.copied().fold(0.0_f64, f64::max);
    let paths = lines.iter().enumerate().map(|(place, line)| {
        let path = path(line, most);
        let area = (place == 0 && !path.is_empty()).then(|| {
            let first = line.iter().position(Option::is_some).unwrap_or(0);
            let area = format!("{path}V{HEIGHT:.0}H{:.1}Z", across(first, line.len()));
            el("path").class("area").attr("d", area)
        });
        let stroke = el("path")
            .class(format!("line line-{place}"))
            .attr("d", path)
            .attr("vector-effect", "non-scaling-stroke");
        Html::default().add(area).add(stroke)
    });
    el("svg")
        .attr("viewBox", format!("0 0 {WIDTH:.0} {HEIGHT:.0}"))
        .attr("preserveAspectRatio", "none")
        .attr("role", "img")
        .attr("aria-label", said)
        .all(paths)
}

fn path(line: &[Option<f64>], most: f64) -> String {
    let mut path = String::new();
    let mut draws = false;
    for (at, value) in line.iter().enumerate() {
        let Some(value) = value else {
            draws = false;
            continue;
        };
        let part = if most > 0.0 { value / most } else { 0.0 };
        let (x, y) = (
            across(at, line.len()),
            (HEIGHT - 2.0) * (1.0 - part.clamp(0.0, 1.0)) + 1.0,
        );
        let step = if draws { 'L' } else { 'M' };
        let _ = write!(path, "{step}{x:.1} {y:.1}");
        draws = true;
    }
    path
}

#[expect(
    clippy::cast_precision_loss,
    reason = "some hundred points are drawn at most"
)]
fn across(at: usize, count: usize) -> f64 {
    if count < 2 {
        return WIDTH;
    }
    WIDTH * at as f64 / (count - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_from_the_left_to_the_right_and_the_most_is_at_the_top() {
        assert_eq!(
            path(&[Some(0.0), None, Some(2.0)], 2.0),
            "M0.0 47.0M240.0 1.0"
        );
        assert_eq!(path(&[Some(1.0), Some(1.0)], 0.0), "M0.0 47.0L240.0 47.0");
        assert_eq!(path(&[], 0.0), "");
    }
}
