//! Tests that run once on each store.

/// The store of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A file.
    Sqlite,
    /// A database on the tests' server.
    Postgres,
}

/// Generates two tests of each function, one for each store.
#[macro_export]
macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::both_stores::Store::Sqlite).await;
            })*
        }

        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::both_stores::Store::Postgres).await;
            })*
        }
    };
}
