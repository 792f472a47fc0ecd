//! TLS: the servers to which a store connects, and those that it rejects.

use hapax::store::Keys;
use hapax_postgres::{OpenError, Postgres};
use hapax_testkit::{
    assert_matches,
    postgres::{Certificates, Cluster},
    wait::eventually,
};

use crate::fixture::{PATIENCE, settings};

const IS_PRIVATE: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

#[tokio::test]
async fn a_server_is_taken_that_shows_a_certificate_of_its_authority_for_its_name() {
    let (cluster, certificates) = server("localhost").await;
    let root = certificates.root();
    for mode in [
        "sslmode=require",
        "sslmode=verify-full",
        "connect_timeout=5",
    ] {
        let url = format!("{}?{mode}&sslrootcert={}", named(&cluster), root.display());
        assert!(is_private(&url).await, "{mode}");
    }
    let mut settings = settings(&named(&cluster));
    settings.root_certificates = Some(root);
    let store = Postgres::open(settings).await.unwrap();
    assert!(store.read(IS_PRIVATE, &[]).await.unwrap()[0].get::<_, bool>(0));
}

#[tokio::test]
async fn a_server_is_refused_whose_certificate_another_authority_gave() {
    let (cluster, _certificates) = server("localhost").await;
    let another = Certificates::of("localhost");
    let url = format!(
        "{}?sslrootcert={}",
        named(&cluster),
        another.root().display()
    );
    check_refused(&url, "certificate: UnknownIssuer").await;
    // Without a configured authority, the web's authorities are used.
    let url = format!("{}?sslmode=require", named(&cluster));
    check_refused(&url, "certificate: UnknownIssuer").await;
}

#[tokio::test]
async fn a_server_is_refused_whose_certificate_is_for_another_name() {
    let (cluster, certificates) = server("db.example.com").await;
    for mode in ["require", "verify-ca", "verify-full"] {
        let root = certificates.root();
        let url = format!(
            "{}?sslmode={mode}&sslrootcert={}",
            named(&cluster),
            root.display()
        );
        check_refused(&url, "certificate not valid for name \"localhost\"").await;
    }
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_asked_for() {
    let cluster = Cluster::start().await;
    let url = format!("{}?sslmode=require", named(&cluster));
    check_refused(&url, "server does not support TLS").await;
}

#[tokio::test]
async fn any_certificate_is_taken_where_none_is_asked_for_and_none_on_the_loopback_interface() {
    let (cluster, _certificates) = server("somebody").await;
    let port = cluster.address().split_once(':').unwrap().1.to_owned();
    // A name that does not belong to this machine, with an address that does.
    let url = format!("postgres://postgres@db.example.com:{port}/postgres?hostaddr=127.0.0.1");
    assert!(is_private(&url).await);
    assert!(!is_private(&named(&cluster)).await);
}

#[tokio::test]
async fn a_file_without_certificates_is_refused_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("empty.pem");
    std::fs::write(&path, "nothing").unwrap();
    for (path, problem) in [
        (path, "contains none"),
        ("/no/such.pem".into(), "No such file"),
    ] {
        let mut settings = settings("postgres://postgres@db.example.com/postgres");
        settings.root_certificates = Some(path.clone());
        let error = Postgres::open(settings).await.err().unwrap();
        let said = error.to_string();
        assert_matches!(error, OpenError::Settings { .. }, "{said}");
        assert!(
            said.contains(path.to_str().unwrap()) && said.contains(problem),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_statement_is_cancelled_over_tls_as_well() {
    let (cluster, certificates) = server("localhost").await;
    let url = format!(
        "{}?sslrootcert={}",
        named(&cluster),
        certificates.root().display()
    );
    let store = Postgres::open(settings(&url)).await.unwrap();
    let mut tx = store
        .begin(None, hapax::event::Headers::new())
        .await
        .unwrap();
    let asked = tokio::spawn(async move { tx.query("SELECT pg_sleep(60)", &[]).await });
    let plain = cluster.client().await;
    let sleeps = "SELECT count(*) FROM pg_stat_activity
        WHERE state = 'active' AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()";
    let sleepers = async || plain.query_one(sleeps, &[]).await.unwrap().get::<_, i64>(0);
    eventually(PATIENCE, async || sleepers().await == 1).await;
    asked.abort();
    eventually(PATIENCE / 3, async || sleepers().await == 0).await;
}

/// A server with a certificate for this name, and its authority.
async fn server(name: &str) -> (Cluster, Certificates) {
    let certificates = Certificates::of(name);
    let cluster = Cluster::start().await;
    certificates.install(&cluster).await;
    (cluster, certificates)
}

/// The server's URL with a host name.
fn named(cluster: &Cluster) -> String {
    cluster.url().replace("127.0.0.1", "localhost")
}

async fn is_private(url: &str) -> bool {
    let store = Postgres::open(settings(url)).await;
    let store = store.unwrap_or_else(|error| panic!("{url}: {}", error_chain(&error)));
    store.read(IS_PRIVATE, &[]).await.unwrap()[0].get(0)
}

async fn check_refused(url: &str, problem: &str) {
    let error = Postgres::open(settings(url)).await.err();
    let said = error_chain(&error.unwrap_or_else(|| panic!("{url} is taken")));
    assert!(said.contains(problem), "{said}");
}

/// The error with its sources.
fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |error_chain, cause| {
        format!("{error_chain}: {cause}")
    })
}
