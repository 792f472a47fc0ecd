//! Every statement of the shop, by name.
//!
//! Each stands in a file of its own in `queries/`; a test prepares all of them
//! against a fresh database.

/// A statement, by the name of its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(super) sqlite: &'static str,
}

macro_rules! queries {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {
        $(
            $(#[$doc])*
            pub(crate) const $name: Query = Query {
                sqlite: const {
                    without_comment(include_str!(concat!("../../queries/sqlite/", $file, ".sql")))
                },
            };
        )*

        /// All of them, for the test that prepares each.
        #[cfg(test)]
        pub(super) const ALL: &[(&str, Query)] = &[$(($file, $name)),*];
    };
}

queries! {
    CHARGE_INSERT = "charge/insert";
    CHARGE_REFUND = "charge/refund";
    CHARGE_SELECT = "charge/select";
    LEDGER_INSERT = "ledger/insert";
    LEDGER_LIST = "ledger/list";
    LEDGER_LIST_BY_CHARGE = "ledger/list_by_charge";
    ORDER_INSERT = "order/insert";
    ORDER_LIST = "order/list";
    ORDER_SELECT = "order/select";
    ORDER_UPDATE = "order/update";
    PROBE_WRITE = "probe/write";
    RECEIVER_COUNT = "receiver/count";
    RECEIVER_LIST = "receiver/list";
    REFUND_INSERT = "refund/insert";
    USER_INSERT = "user/insert";
}

/// Skips the comment on top: the rest is what the statement cache hashes on every call.
const fn without_comment(text: &'static str) -> &'static str {
    let bytes = text.as_bytes();
    let mut start = 0;
    while start + 1 < bytes.len() && bytes[start] == b'-' && bytes[start + 1] == b'-' {
        while start < bytes.len() && bytes[start] != b'\n' {
            start += 1;
        }
        start += 1;
    }
    text.split_at(start).1
}
