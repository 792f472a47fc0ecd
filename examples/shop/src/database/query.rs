//! All SQL statements of the shop, by name.
//!
//! Each statement has a file in `queries/sqlite/` and one with the same name in
//! `queries/postgres/`. Tests prepare all of them against fresh databases.

/// The text of a statement in both SQL dialects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

macro_rules! queries {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {
        $(
            $(#[$doc])*
            pub(crate) const $name: Query = Query {
                sqlite: const {
                    without_comment(include_str!(concat!("../../queries/sqlite/", $file, ".sql")))
                },
                postgres: const {
                    without_comment(include_str!(concat!("../../queries/postgres/", $file, ".sql")))
                },
            };
        )*

        /// All queries, for the tests that prepare them.
        #[cfg(test)]
        pub(super) const ALL: &[(&str, Query)] = &[$(($file, $name)),*];
    };
}

queries! {
    CHARGE_FIND = "charge/find";
    CHARGE_INSERT = "charge/insert";
    CHARGE_LOCK = "charge/lock";
    CUSTOMER_EMAIL = "customer/email";
    CUSTOMER_SET_EMAIL = "customer/set_email";
    LEDGER_INSERT = "ledger/insert";
    LEDGER_LIST = "ledger/list";
    LEDGER_LIST_BY_CHARGE = "ledger/list_by_charge";
    ORDER_INSERT = "order/insert";
    ORDER_LIST = "order/list";
    ORDER_SELECT = "order/select";
    ORDER_UPDATE = "order/update";
    PROBE_WRITE = "probe/write";
    REFUND_ADOPT = "refund/adopt";
    REFUND_DROP = "refund/drop";
    REFUND_FIND = "refund/find";
    REFUND_INSERT = "refund/insert";
    REFUND_MATCH = "refund/match";
    REFUND_RECORD = "refund/record";
    REFUND_SETTLE = "refund/settle";
    REFUND_SUM = "refund/sum";
    STOCK_RELEASE = "stock/release";
    STOCK_RESERVE = "stock/reserve";
    THUMBNAIL_INSERT = "thumbnail/insert";
    THUMBNAIL_LIST = "thumbnail/list";
    THUMBNAIL_SELECT = "thumbnail/select";
    UPLOAD_FIND = "upload/find";
    UPLOAD_FINISH = "upload/finish";
    UPLOAD_INSERT = "upload/insert";
    UPLOAD_SELECT = "upload/select";
    UPLOAD_UNNAMED = "upload/unnamed";
    USER_INSERT = "user/insert";
}

/// Removes the comment at the top, because the statement cache hashes the text on every call.
pub(crate) const fn without_comment(text: &'static str) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_file_has_a_name() {
        for dialect in ["sqlite", "postgres"] {
            let folder = format!("{}/queries/{dialect}", env!("CARGO_MANIFEST_DIR"));
            let nouns = std::fs::read_dir(folder)
                .unwrap()
                .map(|noun| noun.unwrap().path());
            let files = nouns
                .flat_map(|noun| std::fs::read_dir(noun).unwrap())
                .count();
            assert_eq!(files, ALL.len(), "{dialect}");
        }
    }

    #[test]
    fn a_query_begins_behind_its_comment() {
        for (name, query) in ALL {
            for sql in [query.sqlite, query.postgres] {
                assert!(sql.starts_with(|c: char| c.is_ascii_uppercase()), "{name}");
            }
        }
    }
}
