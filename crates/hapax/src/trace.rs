//! Where a piece of work stands in a trace that crosses processes.
//!
//! A [`TraceContext`] is what a `traceparent` header says (W3C Trace Context). [`Traces`] gives
//! each request, attempt, message and step of a saga a [`Place`] below the one that caused it.
//! A place that is recorded is told of by a `tracing` span with the field `traceparent`; a
//! subscriber that exports spans takes their ids from there, such as `hapax-otlp`.
//!
//! What is malformed is no error: it is left out, and the work begins a trace of its own. Where
//! nothing is traced, what came in travels on as it is, and nothing is made for it.

use std::{
    fmt,
    num::{NonZeroU64, NonZeroU128},
};

use tracing::field::DisplayValue;

use crate::{clock::Random, event::Headers, limits::TRACESTATE_BYTES_MAX};

/// The header that carries a context, in HTTP, in events and in messages.
pub const TRACEPARENT: &str = "traceparent";
/// The header beside it, which holds what tracing systems tell each other.
pub const TRACESTATE: &str = "tracestate";

/// Bytes of a context of version 00.
const BYTES: usize = 55;
const SAMPLED: u8 = 1;
/// The flags that are known and travel on: sampled, and that the trace id is random.
const FLAGS: u8 = 3;

/// A span, as others name it: its trace, itself, and whether it is recorded.
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
    /// Reads a `traceparent`; of a later version, the part that this one knows.
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

    /// The trace that it is of.
    pub const fn trace_id(&self) -> NonZeroU128 {
        self.trace_id
    }

    /// The span itself.
    pub const fn span_id(&self) -> NonZeroU64 {
        self.span_id
    }

    /// The flags, as W3C numbers them.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether somebody records this trace.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// A span below this one.
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

/// Whether work is traced here, and how much of it.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Sampler>);

#[derive(Clone, Debug)]
struct Sampler {
    random: Random,
    /// Traces that begin here are recorded when the low half of their id is below.
    below: u128,
}

impl Traces {
    /// Nothing is traced: what comes in travels on as it is.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Traces what others trace, and this share of what begins here: 0 is none, 1 is all.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the share is between 0 and 1, and 2^64 fits"
    )]
    pub fn sampled(random: Random, share: f64) -> Self {
        let below = (share.clamp(0.0, 1.0) * 2.0_f64.powi(64)) as u128;
        Self(Some(Sampler { random, below }))
    }

    /// Whether anything is traced.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A place below `parent`; the first of a new trace where there is none.
    pub fn below(&self, parent: Option<TraceContext>) -> Place {
        let Some(sampler) = &self.0 else {
            return Place::passed(parent);
        };
        match parent {
            // Whoever began the trace has decided that nobody records it.
            Some(unsampled) if !unsampled.is_sampled() => Place::passed(parent),
            Some(parent) => Place {
                context: Some(parent.child(&sampler.random)),
                parent: Some(parent.span_id),
                is_recorded: true,
            },
            None => sampler.root(),
        }
    }

    /// A place below what `headers` carry.
    pub fn below_headers(&self, headers: &Headers) -> Place {
        if !self.is_on() {
            return Place::default();
        }
        let parent = headers.get(TRACEPARENT);
        self.below(parent.and_then(|text| TraceContext::parse(text)))
    }
}

impl Sampler {
    fn root(&self) -> Place {
        let random = &self.random;
        let trace_id = (u128::from(random.bits()) << 64) | u128::from(random.bits());
        let is_recorded = (trace_id & u128::from(u64::MAX)) < self.below;
        let context = TraceContext {
            trace_id: NonZeroU128::new(trace_id).unwrap_or(NonZeroU128::MIN),
            span_id: span_id(random),
            flags: if is_recorded { SAMPLED } else { 0 },
        };
        Place {
            context: Some(context),
            parent: None,
            is_recorded,
        }
    }
}

/// Where one piece of work stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    context: Option<TraceContext>,
    parent: Option<NonZeroU64>,
    is_recorded: bool,
}

impl Place {
    const fn passed(context: Option<TraceContext>) -> Self {
        Self {
            context,
            parent: None,
            is_recorded: false,
        }
    }

    /// What the work passes on: its own span, or what came in where no span tells of it.
    pub const fn context(&self) -> Option<TraceContext> {
        self.context
    }

    /// Whether a span tells of the work.
    pub const fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// The field `traceparent` of the work's span: the span's own ids.
    pub fn own(&self) -> Option<DisplayValue<TraceContext>> {
        let own = self.context.filter(|_| self.is_recorded);
        own.map(tracing::field::display)
    }

    /// The field `parent_span_id` of the work's span.
    pub fn parent(&self) -> Option<DisplayValue<SpanId>> {
        self.parent.map(SpanId).map(tracing::field::display)
    }
}

/// The id of a span, which prints as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(NonZeroU64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Whether a `tracestate` from outside may travel on.
pub fn is_tracestate(text: &[u8]) -> bool {
    let visible = |byte: &u8| (0x20..0x7f).contains(byte);
    (1..=TRACESTATE_BYTES_MAX).contains(&text.len()) && text.iter().all(visible)
}

fn span_id(random: &Random) -> NonZeroU64 {
    NonZeroU64::new(random.bits()).unwrap_or(NonZeroU64::MIN)
}

/// A number of lower-case hexadecimal digits: W3C knows no others.
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
        assert_eq!(Traces::off().below_headers(&headers), Place::default());
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

    /// A stream of numbers that looks random and is the same every time.
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
