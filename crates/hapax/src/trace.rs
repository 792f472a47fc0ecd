//! Trace context: the position of a piece of work in a distributed trace.
//!
//! A [`TraceContext`] is the content of a `traceparent` header (W3C Trace Context). [`Traces`]
//! gives each request, attempt, message and saga step a [`TracePosition`] below the one that caused
//! it. If a position is recorded, a `tracing` span with the field `traceparent` describes it; a
//! subscriber that exports spans, such as `hapax-otlp`, uses the ids of that field.
//!
//! A malformed header is ignored, and the work starts a new trace. If tracing is off, an incoming
//! context is passed on unchanged.

use std::{
    fmt,
    num::{NonZeroU64, NonZeroU128},
};

use tracing::field::DisplayValue;

use crate::{clock::Random, event::Headers, limits::TRACESTATE_BYTES_MAX};

/// The header that contains the context, in HTTP, events and messages.
pub const TRACEPARENT: &str = "traceparent";
/// The header that contains vendor-specific data of tracing systems.
pub const TRACESTATE: &str = "tracestate";

/// Length of a context of version 00 in bytes.
const BYTES: usize = 55;
const SAMPLED: u8 = 1;
/// The flags that are passed on: sampled, and random trace id.
const FLAGS: u8 = 3;

/// The identity of a span: its trace, its id, and whether it is recorded.
///
/// ```
/// # use hapax::trace::TraceContext;
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let context = TraceContext::parse(text).expect("it is well-formed");
/// assert!(context.is_sampled());
/// assert_eq!(context.to_string(), text);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: NonZeroU128,
    span_id: NonZeroU64,
    flags: u8,
}

impl TraceContext {
    /// Parses a `traceparent`. Of a later version, the known part is used.
    pub fn parse(text: &str) -> Option<Self> {
        let (known, rest) = text.as_bytes().split_at_checked(BYTES)?;
        let [version, trace_id, span_id, flags] = [(0, 2), (3, 35), (36, 52), (53, 55)]
            .map(|(from, to)| hex(known.get(from..to).unwrap_or_default()));
        let version = version.filter(|version| *version != 0xff)?;
        let dashes = [2, 35, 52].iter().all(|place| known[*place] == b'-');
        let ends = rest.is_empty() || (version > 0 && rest[0] == b'-');
        Some(Self {
            trace_id: NonZeroU128::new(trace_id?)?,
            span_id: NonZeroU64::new(u64::try_from(span_id?).ok()?)?,
            flags: u8::try_from(flags?).ok()? & FLAGS,
        })
        .filter(|_| dashes && ends)
    }

    /// The id of the trace.
    pub const fn trace_id(&self) -> NonZeroU128 {
        self.trace_id
    }

    /// The id of the span.
    pub const fn span_id(&self) -> NonZeroU64 {
        self.span_id
    }

    /// The flags, as defined by W3C.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether the trace is recorded.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Creates a span below this one.
    fn child(self, random: &Random) -> Self {
        Self {
            span_id: span_id(random),
            ..self
        }
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace_id,
            span_id,
            flags,
        } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

/// Whether work is traced, and which share of it.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Sampler>);

#[derive(Clone, Debug)]
struct Sampler {
    random: Random,
    /// New traces are recorded if the low half of their id is below this value.
    below: u128,
}

impl Traces {
    /// Tracing is off. Incoming contexts are passed on unchanged.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Traces what the caller traces, and this share of new traces: 0 is none, 1 is all.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the share is between 0 and 1, so that the product is at most 2^64"
    )]
    pub fn sampled(random: Random, share: f64) -> Self {
        let below = (share.clamp(0.0, 1.0) * 2.0_f64.powi(64)) as u128;
        Self(Some(Sampler { random, below }))
    }

    /// Whether tracing is on.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Creates a place below `parent`, or the first one of a new trace if there is no parent.
    pub fn below(&self, parent: Option<TraceContext>) -> TracePosition {
        let Some(sampler) = &self.0 else {
            return TracePosition::passed(parent);
        };
        match parent {
            // The system that started the trace has decided not to record it.
            Some(unsampled) if !unsampled.is_sampled() => TracePosition::passed(parent),
            Some(parent) => TracePosition {
                context: Some(parent.child(&sampler.random)),
                parent: Some(parent.span_id),
                is_recorded: true,
            },
            None => sampler.root(),
        }
    }

    /// Creates a place below the context in `headers`.
    pub fn below_headers(&self, headers: &Headers) -> TracePosition {
        if !self.is_on() {
            return TracePosition::default();
        }
        let parent = headers.get(TRACEPARENT);
        self.below(parent.and_then(|text| TraceContext::parse(text)))
    }
}

impl Sampler {
    fn root(&self) -> TracePosition {
        let random = &self.random;
        let trace_id = (u128::from(random.bits()) << 64) | u128::from(random.bits());
        let is_recorded = (trace_id & u128::from(u64::MAX)) < self.below;
        let context = TraceContext {
            trace_id: NonZeroU128::new(trace_id).unwrap_or(NonZeroU128::MIN),
            span_id: span_id(random),
            flags: if is_recorded { SAMPLED } else { 0 },
        };
        TracePosition {
            context: Some(context),
            parent: None,
            is_recorded,
        }
    }
}

/// The position of a piece of work in its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracePosition {
    context: Option<TraceContext>,
    parent: Option<NonZeroU64>,
    is_recorded: bool,
}

impl TracePosition {
    const fn passed(context: Option<TraceContext>) -> Self {
        Self {
            context,
            parent: None,
            is_recorded: false,
        }
    }

    /// The context to pass on: the span of the work, or the incoming context if the work is not
    /// recorded.
    pub const fn context(&self) -> Option<TraceContext> {
        self.context
    }

    /// Whether a span describes the work.
    pub const fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// The field `traceparent` of the span: its own ids.
    pub fn own(&self) -> Option<DisplayValue<TraceContext>> {
        let own = self.context.filter(|_| self.is_recorded);
        own.map(tracing::field::display)
    }

    /// The field `parent_span_id` of the span.
    pub fn parent(&self) -> Option<DisplayValue<SpanId>> {
        self.parent.map(SpanId).map(tracing::field::display)
    }
}

/// The id of a span, printed as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(NonZeroU64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Whether an incoming `tracestate` may be passed on.
pub fn is_tracestate(text: &[u8]) -> bool {
    let visible = |byte: &u8| (0x20..0x7f).contains(byte);
    (1..=TRACESTATE_BYTES_MAX).contains(&text.len()) && text.iter().all(visible)
}

fn span_id(random: &Random) -> NonZeroU64 {
    NonZeroU64::new(random.bits()).unwrap_or(NonZeroU64::MIN)
}

/// Parses lower-case hexadecimal digits; W3C does not allow upper case.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((number << 4) | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_w3c_calls_valid_is_read() {
        check(PARENT, Some(PARENT));
        let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        check(unsampled, Some(unsampled));
        let unknown_flags = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff";
        let known_flags = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03";
        check(unknown_flags, Some(known_flags));
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        check(later, Some(PARENT));
        check(&format!("{later}-what-comes"), Some(PARENT));
    }

    #[test]
    fn what_w3c_calls_invalid_is_no_context() {
        check("", None);
        check(&PARENT[..54], None);
        check(&format!("{PARENT}-more"), None);
        check(&PARENT.replace("00-0", "ff-0"), None);
        check(&PARENT.replace("00-0", "cc-0").replace("-01", "-01x"), None);
        check(&PARENT.to_ascii_uppercase(), None);
        check(&PARENT.replace('-', "_"), None);
        check(
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            None,
        );
        check(&PARENT.replace("b7ad6b7169203331", &"0".repeat(16)), None);
        check(
            &PARENT.replace("b7ad6b7169203331", "b7ad6b716920333é"),
            None,
        );
        check(
            &PARENT.replace("b7ad6b7169203331", "+7ad6b7169203331"),
            None,
        );
    }

    #[test]
    fn below_a_sampled_parent_a_span_of_its_own_tells_of_the_work() {
        let parent = TraceContext::parse(PARENT);
        let place = traces(0.0).below(parent);
        let context = place.context().unwrap();
        assert!(place.is_recorded());
        assert_eq!(context.trace_id(), parent.unwrap().trace_id());
        assert_ne!(context.span_id(), parent.unwrap().span_id());
        assert_eq!(format!("{}", place.parent().unwrap()), "b7ad6b7169203331");
        assert_eq!(format!("{}", place.own().unwrap()), context.to_string());
    }

    #[test]
    fn what_nobody_records_travels_on_as_it_came() {
        let unsampled = TraceContext::parse(&PARENT.replace("-01", "-00"));
        let sampled = TraceContext::parse(PARENT);
        for (traces, parent) in [
            (traces(1.0), unsampled),
            (Traces::off(), sampled),
            (Traces::off(), None),
        ] {
            let place = traces.below(parent);
            assert_eq!(place.context(), parent);
            assert!(!place.is_recorded() && place.own().is_none());
        }
    }

    #[test]
    fn a_share_of_what_begins_here_is_recorded_and_the_rest_says_that_it_is_not() {
        let recorded = |share| {
            let traces = traces(share);
            let places = (0..1_000).map(|_| traces.below(None));
            let recorded = places.filter(|place| {
                let context = place.context().unwrap();
                assert_eq!(context.is_sampled(), place.is_recorded());
                place.is_recorded()
            });
            recorded.count()
        };
        assert_eq!((recorded(0.0), recorded(1.0)), (0, 1_000));
        assert!((200..300).contains(&recorded(0.25)));
    }

    #[test]
    fn a_malformed_header_begins_a_trace_of_its_own() {
        let headers = Headers::from([(TRACEPARENT.to_owned(), "00-1-2-01".to_owned())]);
        let place = traces(1.0).below_headers(&headers);
        assert!(place.is_recorded() && place.parent().is_none());
        assert_eq!(
            Traces::off().below_headers(&headers),
            TracePosition::default()
        );
    }

    proptest! {
        #[test]
        fn a_context_is_read_as_it_was_written(trace in 1_u128.., span in 1_u64.., flags in 0_u8..4) {
            let context = TraceContext {
                trace_id: NonZeroU128::new(trace).unwrap(),
                span_id: NonZeroU64::new(span).unwrap(),
                flags,
            };
            prop_assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
        }

        #[test]
        fn no_text_is_too_odd_to_be_read(text in "\\PC{0,80}", place in 0_usize..55, letter: char) {
            let read = TraceContext::parse(&text);
            prop_assert!(read.is_none_or(|context| context.to_string().len() == BYTES));
            let mut changed: Vec<char> = PARENT.chars().collect();
            changed[place] = letter;
            let changed: String = changed.into_iter().collect();
            if let Some(context) = TraceContext::parse(&changed) {
                prop_assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
            }
        }
    }

    /// A pseudo-random sequence that is the same in every run.
    fn traces(share: f64) -> Traces {
        let count = AtomicU64::new(1);
        let random = Random::new(move || {
            let n = count.fetch_add(1, Ordering::Relaxed);
            let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        });
        Traces::sampled(random, share)
    }

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let read = TraceContext::parse(text).map(|context| context.to_string());
        assert_eq!(read.as_deref(), expected, "{text}");
    }
}
