//! Routes: which operation a method and a path name.
//!
//! Requests that change something are operations, with a name of method and route template. Lists
//! are for counting effects; they are not protected.

/// The kind of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Kind {
    Order,
    Refund,
    Note,
}

/// An operation that is protected by the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    /// Method and route template.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The order of a note.
    pub(crate) parent: Option<String>,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Health,
    /// All effects of that kind; of all kinds without one.
    List(Option<Kind>),
    Operation(Operation),
    WrongMethod,
    Unknown,
}

impl Route {
    /// The route of a method and a path without its query.
    pub(crate) fn of(method: &str, path: &str) -> Self {
        let segments: Vec<_> = path.split('/').skip(1).collect();
        let operation = |name, kind, parent: Option<&str>| {
            Self::Operation(Operation {
                name,
                kind,
                parent: parent.map(str::to_owned),
            })
        };
        match (method, segments.as_slice()) {
            ("GET", ["healthz"]) => Self::Health,
            ("GET", ["orders"]) => Self::List(Some(Kind::Order)),
            ("GET", ["refunds"]) => Self::List(Some(Kind::Refund)),
            ("GET", ["notes"]) => Self::List(Some(Kind::Note)),
            ("GET", ["effects"]) => Self::List(None),
            ("POST", ["orders"]) => operation("POST /orders", Kind::Order, None),
            ("PUT", ["orders"]) => operation("PUT /orders", Kind::Order, None),
            ("PATCH", ["orders"]) => operation("PATCH /orders", Kind::Order, None),
            ("POST", ["refunds"]) => operation("POST /refunds", Kind::Refund, None),
            ("POST", ["orders", id, "notes"]) => {
                operation("POST /orders/{id}/notes", Kind::Note, Some(*id))
            }
            (
                _,
                ["healthz" | "orders" | "refunds" | "notes" | "effects"] | ["orders", _, "notes"],
            ) => Self::WrongMethod,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_operation_has_the_template_and_not_the_path() {
        let Route::Operation(operation) = Route::of("POST", "/orders/7/notes") else {
            panic!("a note is an operation");
        };
        assert_eq!(operation.name, "POST /orders/{id}/notes");
        assert_eq!(operation.parent.as_deref(), Some("7"));
    }

    #[test]
    fn other_methods_are_other_operations_or_refused() {
        assert_ne!(Route::of("POST", "/orders"), Route::of("PUT", "/orders"));
        assert_eq!(Route::of("DELETE", "/orders"), Route::WrongMethod);
        assert_eq!(Route::of("POST", "/order"), Route::Unknown);
        assert_eq!(Route::of("GET", "/orders"), Route::List(Some(Kind::Order)));
    }
}
