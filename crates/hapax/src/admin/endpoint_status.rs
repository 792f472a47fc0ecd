//! The state of an endpoint of a tenant, as operators and its tenant see it.

use serde::Serialize;

/// The state of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum EndpointStatus {
    /// It receives events.
    Enabled,
    /// It receives events one at a time and with pauses, because its last attempts have failed.
    Slowed,
    /// It receives no events.
    Disabled,
}

impl EndpointStatus {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Enabled, Self::Slowed, Self::Disabled];

    /// The state of an endpoint that is disabled, or whose last attempts have failed.
    pub const fn of(is_disabled: bool, is_slowed: bool) -> Self {
        match (is_disabled, is_slowed) {
            (true, _) => Self::Disabled,
            (false, true) => Self::Slowed,
            (false, false) => Self::Enabled,
        }
    }

    /// The state of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Slowed => "slowed",
            Self::Disabled => "disabled",
        }
    }
}

/// Why an endpoint is slowed: the number of its failures and the last error.
pub fn slowed_reason(failures: u32, last_error: Option<&str>) -> String {
    match last_error {
        Some(error) => format!("{failures} attempts in a row have failed: {error}"),
        None => format!("{failures} attempts in a row have failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disabled_endpoint_is_in_no_other_state() {
        let of = |is_disabled, is_slowed| EndpointStatus::of(is_disabled, is_slowed).as_str();
        assert_eq!(of(false, false), "enabled");
        assert_eq!(of(false, true), "slowed");
        assert_eq!(of(true, false), "disabled");
        assert_eq!(of(true, true), "disabled");
    }

    #[test]
    fn a_state_is_read_from_its_word() {
        for state in EndpointStatus::ALL {
            assert_eq!(EndpointStatus::parse(state.as_str()), Some(state));
        }
        assert_eq!(EndpointStatus::parse("Enabled"), None);
    }
}
