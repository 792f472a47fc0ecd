//! The whole matrix: every framework with one driver, and every driver with one framework.
//!
//! `cargo x sdk --all` runs these tests, several at once.

use std::{fs, path::Path};

use crate::{
    answers::check_answers,
    commits::check_commits,
    failures::{check_throws, check_violations},
    kind::{Kind, Language},
    pooled::check_pooled,
    probed::check_promise,
    statements::check_statements,
    webhooks::check_webhooks,
};

/// Makes a test of each kind, and the list of them.
macro_rules! kinds {
    ($($name:ident: $kind:expr,)*) => {
        const KINDS: &[Kind] = &[$($kind),*];
        $(
            #[test]
            fn $name() {
                check_kind($kind);
            }
        )*
    };
}

kinds! {
    fastify_keeps_the_promise: Kind::node("fastify", "pg"),
    hono_keeps_the_promise: Kind::node("hono", "pg"),
    nest_keeps_the_promise: Kind::node("nest", "pg"),
    nest_on_fastify_keeps_the_promise: Kind::node("nest-fastify", "pg"),
    postgres_js_keeps_the_promise: Kind::node("express", "postgres-js"),
    kysely_keeps_the_promise: Kind::node("express", "kysely"),
    drizzle_keeps_the_promise: Kind::node("express", "drizzle"),
    prisma_keeps_the_promise: Kind::node("express", "prisma"),
    typeorm_keeps_the_promise: Kind::node("express", "typeorm"),
    knex_keeps_the_promise: Kind::node("express", "knex"),
    starlette_keeps_the_promise: Kind::python("starlette", "psycopg"),
    flask_keeps_the_promise: Kind::python("flask", "psycopg-sync"),
    django_keeps_the_promise: Kind::python("django", "django-orm"),
    psycopg_in_threads_keeps_the_promise: Kind::python("fastapi", "psycopg-sync"),
    asyncpg_keeps_the_promise: Kind::python("fastapi", "asyncpg"),
    sqlalchemy_keeps_the_promise: Kind::python("fastapi", "sqlalchemy"),
    sqlalchemy_in_threads_keeps_the_promise: Kind::python("fastapi", "sqlalchemy-sync"),
}

fn check_kind(kind: Kind) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        check_answers(kind).await;
        check_throws(kind).await;
        check_violations(kind).await;
        check_commits(kind).await;
        check_statements(kind).await;
        check_pooled([kind; 2]).await;
        check_webhooks([kind; 2]).await;
    });
    check_promise(kind);
}

#[test]
fn no_framework_and_no_driver_is_left_out() {
    let services = Path::new(env!("CARGO_MANIFEST_DIR")).join("services");
    for (folder, language, ends) in [
        ("node", Language::Node, [".mjs", ".mjs"]),
        ("python", Language::Python, ["_app.py", "_driver.py"]),
    ] {
        let kinds = || KINDS.iter().filter(|kind| kind.language == language);
        let frameworks: Vec<&str> = kinds().map(|kind| kind.framework).collect();
        let drivers: Vec<&str> = kinds().map(|kind| kind.driver).collect();
        for (part, end, known) in [
            ("frameworks", ends[0], frameworks),
            ("drivers", ends[1], drivers),
        ] {
            for entry in fs::read_dir(services.join(folder).join(part)).unwrap() {
                let file = entry.unwrap().file_name();
                let Some(name) = file.to_str().unwrap().strip_suffix(end) else {
                    continue;
                };
                let name = name.replace('_', "-");
                assert!(known.contains(&name.as_str()), "{folder}: {name}");
            }
        }
    }
}
