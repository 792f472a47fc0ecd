//! Explores every state of a model, and reports what was found.
//!
//! The search is breadth first, so a violated property is shown by one of the shortest paths to it.
//! A correct model is explored completely; a model with a bug is explored until the bug is found.

use std::{
    fmt::Debug,
    hash::Hash,
    time::{Duration, Instant},
};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path, Property};

/// A part of the design as a state machine, sound or with a bug.
pub(crate) trait Design:
    Model<State: Explored, Action: Explored> + Send + Sync + 'static
{
    /// The bugs that the model can have.
    type Bug: Copy + Debug + 'static;

    /// The name of the model.
    const NAME: &'static str;
    /// The sound ones, which break nothing, then every bug with a property that it breaks.
    const BUGS: &'static [(Self::Bug, Option<&'static str>)];

    /// The model with this bug; `large` has wider bounds.
    fn new(bug: Self::Bug, large: bool) -> Self;

    /// A bug in words.
    fn name(bug: Self::Bug) -> String {
        words(bug)
    }
}

/// What the checker requires of states and actions.
pub(crate) trait Explored: Clone + Debug + PartialEq + Hash + Send + Sync + 'static {}

impl<T: Clone + Debug + PartialEq + Hash + Send + Sync + 'static> Explored for T {}

/// The result of an exploration.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// States that were come to, counted once for every way in.
    pub(crate) states: usize,
    pub(crate) unique: usize,
    pub(crate) depth: usize,
    pub(crate) broken: Option<Broken>,
    /// Expected states that were not reached. A model in which they do not occur proves little.
    pub(crate) unseen: Vec<&'static str>,
    pub(crate) took: Duration,
}

/// A property that does not hold, and a shortest way to where it does not.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) property: &'static str,
    pub(crate) steps: Vec<String>,
}

/// Explores a sound model to the end, or one with a bug until it breaks a property.
pub(crate) fn explore<D: Design>(
    bug: D::Bug,
    breaks: Option<&'static str>,
    large: bool,
) -> Verdict {
    let began = Instant::now();
    let search = |below| search(D::new(bug, large && breaks.is_none()), breaks, below);
    let mut verdict = search(None);
    // The checker continues a little after its first find, and reports the last one.
    while let Some(broken) = verdict.broken.as_ref().filter(|_| breaks.is_some()) {
        let shorter = search(Some(broken.steps.len()));
        if shorter.broken.is_none() {
            break;
        }
        verdict = shorter;
    }
    Verdict {
        took: began.elapsed(),
        ..verdict
    }
}

/// Searches all, or only what takes fewer steps than `below`.
fn search<D: Design>(model: D, breaks: Option<&'static str>, below: Option<usize>) -> Verdict {
    let mut builder = model.checker();
    if let Some(property) = breaks {
        builder = builder.finish_when(HasDiscoveries::AllOf([property].into()));
    }
    if let Some(steps) = below {
        builder = builder.target_max_depth(steps + 1);
    }
    let checker = builder.spawn_bfs().join();
    let found = checker.discoveries();
    let properties = checker.model().properties();
    let is_sight = |it: &&Property<D>| it.expectation == Expectation::Sometimes;
    let rules = properties.iter().filter(|it| !is_sight(it));
    let broken = rules
        .filter(|it| breaks.is_none_or(|property| it.name == property))
        .filter_map(|it| Some((it.name, steps(found.get(it.name)?))))
        .min_by_key(|(_, steps)| steps.len());
    let unseen = properties.iter().filter(is_sight);
    let unseen = unseen.filter(|it| !found.contains_key(it.name));
    Verdict {
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        broken: broken.map(|(property, steps)| Broken { property, steps }),
        unseen: unseen.map(|it| it.name).collect(),
        took: Duration::ZERO,
    }
}

fn steps<S, A: Debug + Clone>(path: &Path<S, A>) -> Vec<String>
where
    S: Clone,
{
    let actions = path.clone().into_actions();
    actions.iter().map(|action| format!("{action:?}")).collect()
}

/// Checks that a sound model breaks nothing and shows everything, and that each bug breaks what it is said to.
/// `CheckThenInsert` as words.
pub(crate) fn words(name: impl Debug) -> String {
    let mut words = String::new();
    for letter in format!("{name:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

#[cfg(test)]
#[track_caller]
pub(crate) fn check<D: Design>() {
    for (bug, breaks) in D::BUGS {
        // Whether it is found matters here, not how soon.
        let verdict = search(D::new(*bug, false), *breaks, None);
        let broken = verdict.broken.as_ref().map(|broken| broken.property);
        assert_eq!(broken, *breaks, "{}: {verdict:#?}", D::name(*bug));
        if breaks.is_none() {
            assert_eq!(verdict.unseen, [""; 0], "{}", D::name(*bug));
        }
    }
}
