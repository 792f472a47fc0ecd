//! Tables. On a narrow screen each row becomes a card, with the column name before each value.

use crate::{
    fields::url,
    format::cell,
    html::{Element, Html, Render, el, link},
};

/// A table.
pub(crate) struct Table {
    caption: String,
    heads: &'static [&'static str],
    rows: Vec<Element>,
    has_boxes: bool,
    sort: Option<Sort>,
}

/// The order of a table whose rows are all on one page.
struct Sort {
    path: String,
    q: String,
    by: String,
}

impl Table {
    /// A table with these columns. Columns of numbers begin with `#`.
    pub(crate) fn new(caption: impl Into<String>, heads: &'static [&'static str]) -> Self {
        Self {
            caption: caption.into(),
            heads,
            rows: Vec::new(),
            has_boxes: false,
            sort: None,
        }
    }

    /// Makes every column name a link that sorts the page by it. `by` is the current column.
    pub(crate) fn sorted(mut self, path: &str, q: &str, by: &str) -> Self {
        self.sort = Some(Sort {
            path: path.to_owned(),
            q: q.to_owned(),
            by: by.to_owned(),
        });
        self
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [Html; N]) {
        let row = self.cells(el("tr"), cells);
        self.rows.push(row);
    }

    /// Adds a row with a check box, or with room for one if it has no value. Either all rows of a
    /// table are added in this way, or none.
    pub(crate) fn boxed_row<const N: usize>(
        &mut self,
        value: Option<&str>,
        what: &str,
        cells: [Html; N],
    ) {
        self.has_boxes = true;
        let input = value.map(|value| {
            el("input")
                .attr("type", "checkbox")
                .attr("name", "one")
                .attr("value", value)
                .attr("aria-label", format!("Select {what}"))
        });
        let first = el("td").class("pick").attr("data-head", "Select");
        let row = self.cells(el("tr").add(first.add(input)), cells);
        self.rows.push(row);
    }

    fn cells<const N: usize>(&self, row: Element, cells: [Html; N]) -> Element {
        let cell = |(head, cell): (&&'static str, Html)| {
            let td = el("td").attr("data-head", name_of(head));
            // One element, so that a card has two columns: the name and the value.
            numeric(td, head).add(el("div").class("v").add(cell))
        };
        row.all(self.heads.iter().zip(cells).map(cell))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn head(&self, head: &str) -> Element {
        let th = numeric(el("th").attr("scope", "col"), head);
        let name = name_of(head);
        let Some(sort) = &self.sort else {
            return th.add(name);
        };
        let column = column_of(head);
        let th = if sort.by == column {
            let is_number = head.starts_with('#');
            th.attr(
                "aria-sort",
                if is_number { "descending" } else { "ascending" },
            )
        } else {
            th
        };
        let to = url(&sort.path, &[("q", &sort.q), ("sort", &column)]);
        th.add(link(&to, name))
    }
}

/// The name of a column in a URL.
pub(crate) fn column_of(head: &str) -> String {
    name_of(head).to_lowercase().replace(' ', "-")
}

fn name_of(head: &str) -> &str {
    head.trim_start_matches('#')
}

fn numeric(element: Element, head: &str) -> Element {
    if head.starts_with('#') {
        element.class("n")
    } else {
        element
    }
}

impl Render for Table {
    fn render(&self, into: &mut String) {
        let pick = self.has_boxes.then(|| {
            let name = el("span").class("unseen").add("Select");
            el("th").attr("scope", "col").class("pick").add(name)
        });
        let heads = self.heads.iter().map(|head| self.head(head));
        let head = el("thead").add(el("tr").add(pick).all(heads));
        let body = el("tbody").all(&self.rows);
        let table = el("table")
            .add(el("caption").class("unseen").add(&self.caption))
            .add(head)
            .add(body);
        cell(table).render(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_a_box_has_its_value_before_its_cells() {
        let mut table = Table::new("Letters", &["Event", "#Attempts"]);
        table.boxed_row(Some("mail 7"), "event 7", [cell("a"), cell(3_u64)]);
        let html = cell(table).into_string();
        assert!(
            html.contains("value=\"mail 7\" aria-label=\"Select event 7\""),
            "{html}"
        );
        assert!(
            html.contains("<td class=\"n\"") || html.contains("class=\"n\">"),
            "{html}"
        );
        assert_eq!(
            html.matches("<th").count() - html.matches("<thead").count(),
            3
        );
    }

    #[test]
    fn a_sorted_table_links_its_columns_and_marks_the_current_one() {
        let table = Table::new("Places", &["Destination", "#Lag"]).sorted("/p", "a b", "lag");
        let html = cell(table).into_string();
        assert!(
            html.contains("href=\"/p?q=a%20b&amp;sort=destination\""),
            "{html}"
        );
        assert_eq!(
            html.matches("aria-sort=\"descending\"").count(),
            1,
            "{html}"
        );
    }
}
