//! What a run shows, and whether it holds.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    time::Duration,
};

use crate::{
    Hiccup, Outage,
    customer::{Book, Kind},
};

/// How far a client's own clock and this one may be apart.
const SLACK_MS: u64 = 10;
/// How much more than usual may arrive within 100 ms before it is a wave.
const WAVE: f64 = 4.0;
/// In at least this part of a phase the clients must have run as the clock did.
const SOUND: f64 = 0.5;
/// Below this many the chance of a few more looks like a wave.
const FEW: usize = 20;

/// What a run shows.
pub(crate) struct Verdict {
    outage: Outage,
    /// By second: new orders, old ones sent again, retries.
    seconds: Vec<[usize; 3]>,
    /// By 100 ms: all that was sent.
    tenths: Vec<usize>,
    hiccups: Vec<Hiccup>,
    orders: usize,
    failed: usize,
    missing: Vec<String>,
    wrong: Vec<String>,
}

impl Verdict {
    /// Compares what the customers did with what the shop has.
    pub(crate) fn of(
        outage: Outage,
        books: &[Book],
        there: &BTreeMap<String, usize>,
        hiccups: Vec<Hiccup>,
    ) -> Self {
        let (mut seconds, mut tenths) = (Vec::new(), Vec::new());
        let (mut missing, mut wrong) = (Vec::new(), Vec::new());
        let placed = || books.iter().flat_map(|book| &book.orders);
        for (at, kind) in books.iter().flat_map(|book| &book.sent) {
            let second = usize::try_from(at.as_secs()).unwrap();
            seconds.resize(seconds.len().max(second + 1), [0; 3]);
            seconds[second][*kind as usize] += 1;
            let tenth = usize::try_from(at.as_millis() / 100).unwrap();
            tenths.resize(tenths.len().max(tenth + 1), 0);
            tenths[tenth] += 1;
        }
        for order in placed() {
            match there.get(order) {
                None => missing.push(order.clone()),
                Some(1) => {}
                Some(often) => wrong.push(format!("order {order} is there {often} times")),
            }
        }
        let orders = placed().count();
        if there.len() > orders {
            wrong.push(format!(
                "{} orders that nobody placed",
                there.len() - orders
            ));
        }
        for (number, book) in books.iter().enumerate() {
            wrong.extend(book.strange.iter().cloned());
            wrong.extend(
                over_budget(book).map(|error_chain| format!("client {number}: {error_chain}")),
            );
        }
        let failed = books.iter().map(|book| book.failed).sum();
        Self {
            outage,
            seconds,
            tenths,
            hiccups,
            orders,
            failed,
            missing,
            wrong,
        }
    }

    /// What does not hold.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        if !self.missing.is_empty() {
            wrong.push(format!(
                "{} orders are missing: {:?}",
                self.missing.len(),
                self.missing
            ));
        }
        for (when, from, to) in self.phases() {
            let (mean, peak, sound) = self.arrivals(from, to);
            if sound < SOUND {
                wrong.push(format!(
                    "{when} the clients were held up: nobody knows of waves"
                ));
            }
            if peak > FEW && f64::from(u32::try_from(peak).unwrap()) > WAVE * mean {
                wrong.push(format!(
                    "a wave {when}: {peak} in 100 ms where {mean:.0} are usual"
                ));
            }
        }
        if self.failed == 0 || self.seconds.iter().all(|second| second[2] == 0) {
            wrong.push("the outage did not bite: the run proves nothing".to_owned());
        }
        wrong
    }

    fn phases(&self) -> [(&'static str, Duration, Duration); 3] {
        let Outage { from, to } = self.outage;
        let after = to + Duration::from_secs(5);
        [
            ("before", Duration::ZERO, from),
            ("while it is down", from, to),
            ("when it is back", to, after),
        ]
    }

    /// The mean and the most that was sent in 100 ms, between two moments; and the part of these in
    /// which nobody was held up, where alone the most is looked for.
    fn arrivals(&self, from: Duration, to: Duration) -> (f64, usize, f64) {
        let index = |at: Duration| usize::try_from(at.as_millis() / 100).unwrap();
        let end = index(to).min(self.tenths.len());
        let span = (index(from) + 1).min(end)..end;
        // Whoever was late comes together with those who are on time.
        let late = |tenth: &usize| {
            let mut hiccups = self.hiccups.iter();
            hiccups.any(|it| (index(it.from)..=index(it.to) + 1).contains(tenth))
        };
        let sent = |tenth: usize| self.tenths[tenth];
        let sum: usize = span.clone().map(sent).sum();
        let sound: Vec<_> = span.clone().filter(|it| !late(it)).map(sent).collect();
        let real = |count: usize| f64::from(u32::try_from(count).unwrap());
        let count = real(span.len().max(1));
        let peak = sound.iter().copied().max().unwrap_or_default();
        (real(sum) / count, peak, real(sound.len()) / count)
    }
}

/// The first window in which a client sent more retries than its budget has.
///
/// It is the default one: five at once, half a retry a second, a tenth for each first attempt; which
/// is 10 % and one a second from ten seconds on.
fn over_budget(book: &Book) -> Option<String> {
    let mut sent = book.sent.clone();
    sent.sort_by_key(|(at, kind)| (*at, *kind == Kind::Retry));
    let millis = |at: Duration| u64::try_from(at.as_millis()).unwrap();
    for (begin, (from, _)) in sent.iter().enumerate().filter(|it| it.1.1 == Kind::Retry) {
        let (mut retries, mut firsts) = (0, 0);
        // A first attempt of this very moment may have been taken down a little earlier.
        let early = |at: &Duration| millis(*at) + SLACK_MS >= millis(*from);
        firsts += sent[..begin]
            .iter()
            .rev()
            .take_while(|it| early(&it.0))
            .count() as u64;
        for (at, kind) in &sent[begin..] {
            if *kind != Kind::Retry {
                firsts += 1;
                continue;
            }
            retries += 1;
            let width = millis(*at) - millis(*from) + SLACK_MS;
            let bound = (5_000 + firsts * 100 + width / 2).min(firsts * 100 + width.max(10_000));
            if retries * 1_000 > bound {
                return Some(format!(
                    "{retries} retries of {firsts} in {width} ms from {from:?}"
                ));
            }
        }
    }
    None
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outage { from, to } = self.outage;
        writeln!(f, "second,new,again,retries")?;
        for (second, [new, later, retries]) in self.seconds.iter().enumerate() {
            let at = Duration::from_secs(second as u64);
            let down = if at >= from && at < to { "  down" } else { "" };
            writeln!(f, "{second},{new},{later},{retries}{down}")?;
        }
        let mut said = String::new();
        for (when, from, to) in self.phases() {
            let (mean, peak, _) = self.arrivals(from, to);
            writeln!(said, "{when}: {mean:.1} in 100 ms, at most {peak}")?;
        }
        let sums = self.seconds.iter().fold([0; 3], |sum, it| {
            [sum[0] + it[0], sum[1] + it[1], sum[2] + it[2]]
        });
        let there = self.orders - self.missing.len();
        write!(
            f,
            "{said}down for {:.1} s; {} operations failed and were done later\n\
             {} first attempts of new orders, {} of old ones, {} retries\n\
             {there} of {} orders are there once",
            to.saturating_sub(from).as_secs_f64(),
            self.failed,
            sums[0],
            sums[1],
            sums[2],
            self.orders,
        )
    }
}
