//! The kinds of operational events.

/// A kind of operational events. The type of an event is the configured prefix and the name of its
/// kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationalKind {
    /// A relay has disabled an endpoint of a tenant.
    EndpointDisabled,
    /// A relay has enabled an endpoint again that it had disabled.
    EndpointRecovered,
    /// A relay has disabled a destination: its receiver wants no more events, or every attempt has failed
    /// for five days.
    DestinationDisabled,
    /// A delivery to a destination or an endpoint is exhausted: it has no attempts left.
    MessageExhausted,
    /// A destination lags.
    RelayLag,
    /// A destination that lagged has caught up.
    RelayCaughtUp,
}

impl OperationalKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::EndpointDisabled,
        Self::EndpointRecovered,
        Self::DestinationDisabled,
        Self::MessageExhausted,
        Self::RelayLag,
        Self::RelayCaughtUp,
    ];

    /// The name, such as `endpoint.disabled`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndpointDisabled => "endpoint.disabled",
            Self::EndpointRecovered => "endpoint.recovered",
            Self::DestinationDisabled => "destination.disabled",
            Self::MessageExhausted => "message.exhausted",
            Self::RelayLag => "relay.lag",
            Self::RelayCaughtUp => "relay.caught_up",
        }
    }

    /// The kind with a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
