//! Recognition of statements that would end the transaction in which they run.
//!
//! A statement of a handler is sent by the extended protocol, so its text contains one statement, and
//! the server refuses a procedure that commits in an open transaction. The first words of the text
//! therefore decide. Savepoints end nothing, and neither does `BEGIN`.

/// The statements that always end a transaction.
const ENDINGS: [&str; 3] = ["COMMIT", "END", "ABORT"];

/// The first words of `sql` if it would end the transaction in which it runs.
pub(crate) fn ending_keyword(sql: &str) -> Option<&'static str> {
    let (first, rest) = word(sql);
    let is_first = |keyword: &&str| first.eq_ignore_ascii_case(keyword);
    if is_first(&"ROLLBACK") {
        return (!is_to_savepoint(rest)).then_some("ROLLBACK");
    }
    if is_first(&"PREPARE") {
        let is_transaction = word(rest).0.eq_ignore_ascii_case("TRANSACTION");
        return is_transaction.then_some("PREPARE TRANSACTION");
    }
    ENDINGS.into_iter().find(is_first)
}

/// Whether a rollback, by what follows its first word, goes back to a savepoint only.
fn is_to_savepoint(sql: &str) -> bool {
    let (mut next, rest) = word(sql);
    let is = |word: &str, keyword| word.eq_ignore_ascii_case(keyword);
    if is(next, "WORK") || is(next, "TRANSACTION") {
        next = word(rest).0;
    }
    is(next, "TO")
}

/// Splits the first word from a text, without what separates it from the one before.
fn word(sql: &str) -> (&str, &str) {
    let sql = skip_separators(sql);
    let is_end = |c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_';
    sql.split_at(sql.find(is_end).unwrap_or(sql.len()))
}

/// Skips white space, comments, and the semicolons of empty statements.
fn skip_separators(mut sql: &str) -> &str {
    loop {
        sql = sql.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}', ';']);
        if let Some(comment) = sql.strip_prefix("--") {
            let end = comment.find(['\n', '\r']);
            sql = end.map_or("", |end| &comment[end..]);
        } else if let Some(comment) = sql.strip_prefix("/*") {
            sql = skip_comment(comment);
        } else {
            return sql;
        }
    }
}

/// Skips the rest of a comment. It may contain comments.
fn skip_comment(mut sql: &str) -> &str {
    let mut depth = 1;
    while depth > 0 {
        let Some(end) = sql.find("*/") else { return "" };
        match sql.find("/*") {
            Some(start) if start < end => {
                depth += 1;
                sql = &sql[start + 2..];
            }
            _ => {
                depth -= 1;
                sql = &sql[end + 2..];
            }
        }
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_ends_a_transaction_is_recognized_in_every_spelling() {
        for (sql, keyword) in [
            ("COMMIT", "COMMIT"),
            ("commit and chain", "COMMIT"),
            ("COMMIT;", "COMMIT"),
            ("COMMIT PREPARED 'a'", "COMMIT"),
            ("End Work", "END"),
            ("ABORT", "ABORT"),
            ("ROLLBACK", "ROLLBACK"),
            ("ROLLBACK AND CHAIN", "ROLLBACK"),
            ("rollback transaction;", "ROLLBACK"),
            ("PREPARE\ntransaction 'a'", "PREPARE TRANSACTION"),
            (
                "\t\u{b};; -- it ends here\n/* and /* here */ */COMMIT",
                "COMMIT",
            ),
            ("/**/rollback/* */work", "ROLLBACK"),
            ("-- a\rEND", "END"),
        ] {
            assert_eq!(ending_keyword(sql), Some(keyword), "{sql:?}");
        }
    }

    #[test]
    fn a_statement_that_ends_no_transaction_is_not() {
        for sql in [
            "",
            ";",
            "-- COMMIT",
            "/* COMMIT",
            "/* /* */ COMMIT */ SELECT 1",
            "SAVEPOINT a",
            "RELEASE a",
            "ROLLBACK TO a",
            "rollback /* only */ to savepoint a",
            "ROLLBACK WORK TO SAVEPOINT a",
            "ROLLBACK TRANSACTION TO a",
            "BEGIN",
            "PREPARE commit AS SELECT 1",
            "committed",
            "commit_all()",
            "end\u{e9}",
            "(SELECT 1)",
            "INSERT INTO note VALUES ('COMMIT')",
        ] {
            assert_eq!(ending_keyword(sql), None, "{sql:?}");
        }
    }
}
