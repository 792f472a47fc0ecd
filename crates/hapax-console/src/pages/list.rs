//! Lists: a table with links to its other pages, or a note why it is empty.

use hapax::admin::Page as List;

use crate::{
    format::{cell, nothing, pager, pager_of},
    guard::PageRequest,
    html::Html,
    table::Table,
};

/// The content of a list.
pub(crate) struct Listing {
    /// One of its items.
    pub(crate) one: &'static str,
    /// A sentence for a list that is empty without a filter: what would appear in it, and when.
    pub(crate) empty: &'static str,
}

impl Listing {
    /// A page of a list as a table, with links to the other pages.
    pub(crate) fn listed<T, const N: usize>(
        &self,
        page_request: &PageRequest,
        q: &str,
        mut table: Table,
        page: &List<T>,
        row: impl Fn(&T) -> [Html; N],
    ) -> Html {
        for it in &page.items {
            table.row(row(it));
        }
        self.paged(page_request, q, table, page.next.as_deref())
    }

    /// A table that has its rows, with links to the other pages.
    pub(crate) fn paged(
        &self,
        page_request: &PageRequest,
        q: &str,
        table: Table,
        next: Option<&str>,
    ) -> Html {
        let before = page_request.fields.text("before");
        let is_all = q.trim().is_empty() && before.is_empty();
        let list = self.table(table, is_all, next.is_some());
        list.add(pager(&page_request.path, q, before, next))
    }

    /// The same for a list that is in the order of its names.
    pub(crate) fn named(
        &self,
        page_request: &PageRequest,
        q: &str,
        table: Table,
        next: Option<&str>,
    ) -> Html {
        let before = page_request.fields.text("before");
        let is_all = q.trim().is_empty() && before.is_empty();
        let (path, labels) = (&page_request.path, ["The first", "Next"]);
        let list = self.table(table, is_all, next.is_some());
        list.add(pager_of(path, &[("q", q)], before, next, labels))
    }

    /// A table, or a note that it is empty. `is_all` says that nothing was filtered out.
    pub(crate) fn table(&self, table: Table, is_all: bool, goes_on: bool) -> Html {
        let one = self.one;
        match (table.is_empty(), goes_on) {
            (false, _) => cell(table),
            (true, true) => cell(nothing(&format!(
                "No {one} among those searched so far matches the filter: continue with older ones."
            ))),
            (true, false) if is_all => cell(nothing(self.empty)),
            (true, false) => cell(nothing(&format!("No {one} matches the filter."))),
        }
    }
}
