//! Failures of Kafka: transient or permanent.

use hapax::sink::SinkError;
use rdkafka::types::RDKafkaErrorCode as Code;

/// A failure, with the last error of the client if that is informative.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("client cannot be created: {0}")]
    Client(String),
    #[error("topic `{topic}` does not exist or is not visible to this client: create it")]
    Topic { topic: String },
    #[error("queue of the client stayed full")]
    Full,
    #[error(
        "a broker refused a request because of one record, and there was no time to send this one alone"
    )]
    CutOff,
    #[error("topic `{topic}`: {code}{}", said(words.as_deref()))]
    Refused {
        topic: String,
        code: Code,
        words: Option<String>,
    },
}

impl Failure {
    pub(super) fn of(code: Code, topic: &str, words: Option<String>) -> Self {
        let topic = topic.to_owned();
        match code {
            Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => {
                Self::Topic { topic }
            }
            Code::QueueFull => Self::Full,
            _ => Self::Refused { topic, code, words },
        }
    }

    /// Whether a broker that refuses a request with several records may object to one of them only.
    pub(super) fn concerns_one(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                code: Code::MessageSizeTooLarge
                    | Code::MessageBatchTooLarge
                    | Code::InvalidRecord
                    | Code::InvalidMessage
                    | Code::InvalidTimestamp,
                ..
            }
        )
    }

    /// The failure of a record whose topic is its own, while other events go to other topics.
    pub(super) fn of_event(self) -> SinkError {
        match &self {
            Self::Topic { .. }
            | Self::Refused {
                code: Code::TopicAuthorizationFailed | Code::InvalidTopic,
                ..
            } => SinkError::declined(self.error_type(), self),
            _ => self.into(),
        }
    }

    fn error_type(&self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Topic { .. } => "topic",
            Self::Full => "queue_full",
            Self::CutOff => "cut_off",
            Self::Refused { code, .. } => match code {
                Code::MessageTimedOut => "timeout",
                Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => "too_large",
                Code::InvalidRecord | Code::InvalidMessage => "invalid",
                Code::InvalidTimestamp => "timestamp",
                Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::Authentication => "refused",
                _ => "kafka",
            },
        }
    }
}

impl From<Failure> for SinkError {
    /// If a single record is refused, the failure is permanent, except for its timestamp, which the
    /// broker compares with its clock and its settings. All other failures are transient.
    fn from(failure: Failure) -> Self {
        let error_type = failure.error_type();
        let is_declined = matches!(
            failure,
            Failure::CutOff
                | Failure::Refused {
                    code: Code::InvalidTimestamp,
                    ..
                }
        );
        if is_declined {
            Self::declined(error_type, failure)
        } else if failure.concerns_one() {
            Self::rejected(error_type, failure)
        } else {
            Self::unavailable(error_type, failure)
        }
    }
}

fn said(words: Option<&str>) -> String {
    words.map_or_else(String::new, |words| format!(" (client: {words})"))
}
