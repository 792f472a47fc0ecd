//! `--list`: the checks and the profiles, as text or as JSON.
//!
//! The checks are listed in the order in which they run. With `--report junit` or `sarif` the list is
//! text, because these formats contain results only.

use std::fmt::Write as _;

use crate::{ReportFormat, checks, profiles};

pub(super) fn render(format: ReportFormat) -> String {
    match format {
        ReportFormat::Json => {
            let list = serde_json::json!({ "checks": checks(), "profiles": profiles() });
            format!("{list:#}\n")
        }
        ReportFormat::Text | ReportFormat::Junit | ReportFormat::Sarif => text(),
    }
}

fn text() -> String {
    let (checks, profiles) = (checks(), profiles());
    let mut text = String::from("Checks\n");
    let width = checks
        .iter()
        .map(|it| it.id.len())
        .max()
        .unwrap_or_default();
    for check in &checks {
        let _ = writeln!(text, "  {:width$} {}", check.id, check.asks);
    }
    text.push_str("\nProfiles\n");
    let width = profiles.iter().map(|it| it.name.len()).max();
    let width = width.unwrap_or_default();
    for profile in &profiles {
        let _ = writeln!(
            text,
            "  {:width$} {} ({}): {}",
            profile.name, profile.title, profile.version, profile.source
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_and_each_profile_is_listed() {
        let text = render(ReportFormat::Text);
        for check in checks() {
            assert!(text.contains(&format!("  {} ", check.id)), "{}", check.id);
        }
        for profile in profiles() {
            assert!(text.contains(profile.source), "{}", profile.name);
        }
        let json: serde_json::Value =
            serde_json::from_str(&render(ReportFormat::Json)).expect("valid JSON");
        assert_eq!(json["profiles"][1]["name"], "ietf");
        assert!(json["checks"][0]["id"].is_string());
    }
}
