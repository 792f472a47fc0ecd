//! Tables of the children of large objects and arrays.
//!
//! The first lookups in an object or array visit its children, which costs less than a table. If there
//! are more lookups, the table is built, once. So any number of lookups visits each child a bounded number
//! of times.

use std::{
    cell::{Cell, OnceCell},
    collections::HashMap,
};

use super::document::{Kind, Value};

/// Number of lookups that visit the children. A table costs about as much as this many visits.
const VISITS_MAX: u8 = 8;

/// An object or array with many values inside it.
#[derive(Debug)]
pub(super) struct Large {
    /// The index of its node.
    index: u32,
    /// The number of lookups so far, up to [`VISITS_MAX`].
    lookups: Cell<u8>,
    table: OnceCell<Box<Table>>,
}

/// The children of an object or array, by their names or in their order.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The indexes of an object's values by their names; of members with the same name, the last one.
    members: HashMap<String, usize>,
    /// Whether a name is not Unicode text. Nothing can be equal to it.
    has_other_names: bool,
    /// The indexes of an array's items.
    items: Vec<usize>,
}

impl Large {
    pub(super) const fn new(index: u32) -> Self {
        Self {
            index,
            lookups: Cell::new(0),
            table: OnceCell::new(),
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index as usize
    }

    /// The table for a lookup, which `build` makes; `None` at the first lookups.
    pub(super) fn table(&self, build: impl FnOnce() -> Table) -> Option<&Table> {
        let lookups = self.lookups.get();
        if lookups < VISITS_MAX {
            self.lookups.set(lookups + 1);
            return None;
        }
        Some(self.table.get_or_init(|| Box::new(build())))
    }
}

impl Table {
    /// Visits the children of a value.
    pub(super) fn of(value: Value<'_>) -> Self {
        let mut table = Self::default();
        if value.kind() == Kind::Array {
            table.items = value.items().map(Value::index).collect();
            return table;
        }
        for (name, value) in value.members() {
            match name.text() {
                Some(name) => {
                    table.members.insert(name.into_owned(), value.index());
                }
                None => table.has_other_names = true,
            }
        }
        table
    }

    /// The index of the member with this name.
    pub(super) fn member(&self, name: &str) -> Option<usize> {
        self.members.get(name).copied()
    }

    /// The index of the item at this position.
    pub(super) fn item(&self, at: usize) -> Option<usize> {
        self.items.get(at).copied()
    }

    /// The number of different names; `None` if one of them is not Unicode text.
    pub(super) fn names(&self) -> Option<usize> {
        (!self.has_other_names).then_some(self.members.len())
    }
}
