//! Paths into a JSON value, which are followed together.
//!
//! The paths are a tree, in which a beginning that several of them share exists once. Following it visits
//! each object and array that a path leads into once, for any number of paths. Nothing is recursive,
//! so the length of a path is not limited.

use super::document::{Kind, Value, index_of};

/// Different paths: each consists of names of members, and indexes of items.
#[derive(Debug)]
pub(crate) struct Paths {
    /// The places that the paths lead to or through. The first one is the beginning of all paths.
    places: Vec<PathNode>,
    /// The number of paths.
    count: usize,
}

/// A place that a path leads to or through. The next places are given by their indexes.
#[derive(Debug, Default)]
struct PathNode {
    /// The number of the path that ends here.
    path: Option<usize>,
    /// The steps from here, in the order of their texts.
    names: Vec<(String, usize)>,
    /// Those steps that are indexes, in ascending order.
    items: Vec<(usize, usize)>,
    /// The length of the longest step in bytes.
    longest: usize,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            places: vec![PathNode::default()],
            count: 0,
        }
    }
}

impl Paths {
    /// Whether there is no path.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a path unless it is known. Returns its number.
    pub(crate) fn add(&mut self, steps: Vec<String>) -> usize {
        let mut at = 0;
        for step in steps {
            at = self.next(at, step);
        }
        let (place, count) = (&mut self.places[at], &mut self.count);
        *place.path.get_or_insert_with(|| {
            *count += 1;
            *count - 1
        })
    }

    /// The place after a step, which is added if it is not known.
    fn next(&mut self, at: usize, step: String) -> usize {
        let new = self.places.len();
        let place = &mut self.places[at];
        let position = match place.position(&step) {
            Ok(known) => return place.names[known].1,
            Err(position) => position,
        };
        if let Some(index) = index_of(&step) {
            let before = place.items.partition_point(|(other, _)| *other < index);
            place.items.insert(before, (index, new));
        }
        place.longest = place.longest.max(step.len());
        place.names.insert(position, (step, new));
        self.places.push(PathNode::default());
        new
    }

    /// The values at the paths, by the numbers of the paths. If an object has a name more than once, the
    /// last member counts.
    pub(crate) fn find<'d>(&self, root: Value<'d>) -> Vec<Option<Value<'d>>> {
        let mut found = vec![None; self.count];
        if found.is_empty() {
            return found;
        }
        let mut open = vec![(0, root)];
        while let Some((at, value)) = open.pop() {
            let place = &self.places[at];
            if let Some(path) = place.path {
                found[path] = Some(value);
            }
            if place.names.is_empty() {
                continue;
            }
            match value.kind() {
                Kind::Object => place.open_members(value, &mut open),
                Kind::Array => place.open_items(value, &mut open),
                Kind::Null | Kind::False | Kind::True | Kind::Number | Kind::Text => {}
            }
        }
        found
    }
}

impl PathNode {
    /// The position of a step, or the one where it would be.
    fn position(&self, step: &str) -> Result<usize, usize> {
        self.names
            .binary_search_by(|(name, _)| name.as_str().cmp(step))
    }

    /// Adds the members of an object that paths lead to, with their places.
    fn open_members<'d>(&self, object: Value<'d>, open: &mut Vec<(usize, Value<'d>)>) {
        if let Some(table) = object.table() {
            let member = |(name, next): &(String, usize)| {
                let index = table.member(name)?;
                Some((*next, object.sibling(index)))
            };
            open.extend(self.names.iter().filter_map(member));
            return;
        }
        // Of members with the same name the last one counts.
        let mut last = vec![None; self.names.len()];
        for (name, value) in object.members() {
            let name = name.short_text(self.longest);
            if let Some(position) = name.and_then(|name| self.position(&name).ok()) {
                last[position] = Some(value);
            }
        }
        let named = self.names.iter().zip(last);
        open.extend(named.filter_map(|((_, next), value)| Some((*next, value?))));
    }

    /// Adds the items of an array that paths lead to, with their places.
    fn open_items<'d>(&self, array: Value<'d>, open: &mut Vec<(usize, Value<'d>)>) {
        if self.items.is_empty() {
            return;
        }
        if let Some(table) = array.table() {
            let item = |(at, next): &(usize, usize)| {
                let index = table.item(*at)?;
                Some((*next, array.sibling(index)))
            };
            open.extend(self.items.iter().filter_map(item));
            return;
        }
        let (mut items, mut passed) = (array.items(), 0);
        for (at, next) in &self.items {
            let Some(item) = items.nth(at - passed) else {
                return;
            };
            passed = at + 1;
            open.push((*next, item));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::document::{Document, VISITED},
        *,
    };

    #[test]
    fn the_number_of_visits_does_not_depend_on_the_number_of_paths() {
        let members: Vec<_> = (0..10_000).map(|at| format!("\"m{at}\":1")).collect();
        let object = format!("{{{}}}", members.join(","));
        let array = format!("[{}1]", "1,".repeat(20_000));
        for (text, first, step) in [(object, "m", 99_u32), (array, "", 199)] {
            let paths = (0..100).map(|at| vec![format!("{first}{}", at * step)]);
            let count = visited(&text, &paths.collect::<Vec<_>>());
            assert!(count <= 20_001, "{count} visits");
        }
    }

    #[test]
    fn a_beginning_that_paths_share_is_followed_once() {
        let (open, close) = ("[".repeat(1_000), "]".repeat(1_000));
        let start = vec!["0".to_owned(); 999];
        let paths = (0..100).map(|last| [&start[..], &[last.to_string()]].concat());
        let count = visited(&format!("{open}1{close}"), &paths.collect::<Vec<_>>());
        assert!(count <= 1_000, "{count} visits");
    }

    #[test]
    fn many_lookups_of_a_large_object_visit_it_a_few_times() {
        let members: Vec<_> = (0..10_000).map(|at| format!("\"m{at}\":[1]")).collect();
        let text = format!("{{{}}}", members.join(","));
        let document = Document::parse(&text).unwrap();
        VISITED.set(0);
        for at in 0..1_000 {
            let steps = [format!("m{at}"), "0".to_owned()];
            assert!(document.root().at(&steps).is_some());
        }
        let count = VISITED.get();
        assert!(count < 10 * 20_000, "{count} visits");
    }

    proptest! {
        #[test]
        fn paths_lead_where_an_obvious_search_leads(
            text in json(), paths in prop::collection::vec(steps(), 1..12),
        ) {
            let document = Document::parse(&text).unwrap();
            let (mut tree, root) = (Paths::default(), document.root());
            let numbers: Vec<_> = paths.iter().map(|steps| tree.add(steps.clone())).collect();
            // Later rounds use the tables.
            for _ in 0..6 {
                let found = tree.find(root);
                for (steps, number) in paths.iter().zip(&numbers) {
                    let expected = obvious(root, steps).map(Value::json);
                    prop_assert_eq!(found[*number].map(Value::json), expected, "{:?}", steps);
                    prop_assert_eq!(root.at(steps).map(Value::json), expected, "{:?}", steps);
                }
            }
        }
    }

    /// Follows a path on its own, through all members and items.
    fn obvious<'d>(value: Value<'d>, steps: &[String]) -> Option<Value<'d>> {
        let Some((step, rest)) = steps.split_first() else {
            return Some(value);
        };
        let next = if value.kind() == Kind::Array {
            let mut items = value.items().enumerate();
            items.find(|(at, _)| at.to_string() == *step)?.1
        } else {
            let members = value.members();
            let named = members.filter(|(name, _)| name.text().is_some_and(|name| name == *step));
            named.last()?.1
        };
        obvious(next, rest)
    }

    /// JSON with few different names, which are often repeated or escaped; some of it is large.
    fn json() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec!["a", "b", "0", "1", "", "\\u0061", "\\ud800", "ab"]);
        let leaf = (0..100_u32).prop_map(|it| it.to_string());
        leaf.prop_recursive(3, 400, 100, move |inner| {
            let member = (name.clone(), inner.clone());
            let member = member.prop_map(|(name, value)| format!("\"{name}\": {value}"));
            let items = prop::collection::vec(inner, 0..100);
            let members = prop::collection::vec(member, 0..100);
            prop_oneof![
                items.prop_map(|it| format!("[{}]", it.join(","))),
                members.prop_map(|it| format!("{{{}}}", it.join(","))),
            ]
        })
    }

    fn steps() -> impl Strategy<Value = Vec<String>> {
        let step = prop::sample::select(vec!["a", "b", "0", "1", "7", "01", "90", "", "ab"]);
        prop::collection::vec(step.prop_map(str::to_owned), 0..4)
    }

    /// The number of visits that following these paths takes.
    fn visited(text: &str, paths: &[Vec<String>]) -> usize {
        let document = Document::parse(text).unwrap();
        let mut tree = Paths::default();
        for steps in paths {
            tree.add(steps.clone());
        }
        VISITED.set(0);
        let found = tree.find(document.root());
        assert!(found.iter().any(Option::is_some));
        VISITED.get()
    }
}
