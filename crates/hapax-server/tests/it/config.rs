//! Tests of the configuration: its layers, misspelled settings, secrets, and error messages.

use std::fs;

use crate::hapax::{ProgramOutput, SECRET, hapax, run, run_to_end};

#[test]
fn the_defaults_are_printed_as_the_file_they_are() {
    let printed = run(&["config", "default"]).ended(0).stdout;
    assert_eq!(printed, include_str!("../../src/hapax.default.toml"));
    let read = with_file(&printed, &["config", "show"], &[]);
    read.ended(0);
}

#[test]
fn each_setting_is_shown_with_where_it_came_from() {
    let file = "[relay]\nlease = \"7s\"\npoll = \"70ms\"\n";
    let environment = [
        ("HAPAX__RELAY__POLL", "60ms"),
        ("HAPAX__DATABASE__CONNECTIONS", "9"),
    ];
    let shown = with_file(
        file,
        &["config", "show", "--json", "--log-level", "warn"],
        &environment,
    );
    let settings = shown.ended(0).json();
    let check = |name: &str, value: serde_json::Value, origin: &str| {
        let settings = settings.as_array().unwrap();
        let setting = settings
            .iter()
            .find(|setting| setting["name"] == name)
            .unwrap();
        assert_eq!(setting["value"], value, "{setting}");
        assert!(
            setting["origin"].as_str().unwrap().ends_with(origin),
            "{setting}"
        );
    };
    check("relay.lease", "7s".into(), "hapax.toml");
    check("relay.poll", "60ms".into(), "HAPAX__RELAY__POLL");
    check(
        "database.connections",
        9.into(),
        "HAPAX__DATABASE__CONNECTIONS",
    );
    check("log.level", "warn".into(), "--log-level");
    check("retention.events", "7d".into(), "default");
}

#[test]
fn a_secret_is_shown_nowhere() {
    let key = format!("{}A=", "hunter2".repeat(6));
    let file = format!(
        "[database]\nurl = \"postgres://a:hunter2@db/a\"\n\
         [destinations.a]\nsink.redis.url = \"redis://:hunter2@r/0\"\n\
         [destinations.b]\nsink.nats.url = \"nats://a:hunter2@n\"\n\
         [destinations.c.sink.webhook]\nurl = \"https://c\"\nsecret = \"{SECRET}\"\n\
         headers.x-api-key = \"hunter2\"\n\
         basic.user = \"c\"\nbasic.password = \"hunter2\"\n\
         [destinations.d.sink.webhook]\nurl = \"https://d\"\nsecret = \"{SECRET}\"\n\
         oauth.token_url = \"https://e\"\noauth.client_id = \"d\"\n\
         oauth.client_secret = \"hunter2\"\n\
         [destinations.e.sink.s3]\nendpoint = \"https://e\"\nregion = \"auto\"\n\
         bucket = \"e\"\naccess_key_id = \"e\"\nsecret_access_key = \"hunter2\"\n\
         session_token = \"hunter2\"\n\
         [destinations.f.sink.sqs]\nqueue_url = \"https://f/1/f\"\nregion = \"auto\"\n\
         access_key_id = \"f\"\nsecret_access_key = \"hunter2\"\n\
         [destinations.g.sink.sns]\n\
         topic_arn = \"arn:aws:sns:eu-central-1:123456789012:g\"\n\
         access_key_id = \"g\"\nsecret_access_key = \"hunter2\"\n\
         session_token = \"hunter2\"\n\
         [destinations.h.sink.pubsub]\ntopic = \"projects/h/topics/h\"\n\
         endpoint = \"https://h\"\n\
         [admin.tokens.ann]\ntoken = \"hunter2hunter2hunter2\"\nrole = \"viewer\"\n\
         [secrets]\nkey = \"{key}\"\nprevious = [\"{key}\"]\n"
    );
    let file = file.as_str();
    for arguments in [
        &["config", "show"][..],
        &["config", "show", "--json"],
        &["config", "check"],
    ] {
        let ran = with_file(file, arguments, &[]).ended(0);
        assert!(!format!("{ran:?}").contains("hunter2"), "{ran:?}");
    }
    let shown = with_file(file, &["config", "show"], &[]);
    assert!(shown.stdout.contains("***"), "{shown:?}");
}

#[test]
fn a_typo_is_refused_with_the_nearest_name() {
    refused(
        "[relay]\nleese = \"7s\"\n",
        "relay.leese is unknown: did you mean lease?",
    );
    refused_with(
        "",
        &[("HAPAX__RELAI__LEASE", "7s")],
        "HAPAX__RELAI__LEASE is unknown: did you mean relay?",
    );
    refused(
        "[destinations.a]\nevnts = [\"x\"]\nsink.file.path = \"-\"\n",
        "destinations.a.evnts is unknown: did you mean events?",
    );
    refused(
        "[destinations.a]\nsink.webhok.url = \"http://x/\"\n",
        "destinations.a.sink.webhok is unknown: did you mean webhook?",
    );
    refused(
        "[destinations.a]\nevents = [\"x\"]\n",
        "destinations.a.sink is missing",
    );
}

#[test]
fn a_destination_that_can_never_work_is_refused_by_its_setting() {
    refused(
        "[destinations.a]\nsink.webhook = { url = \"ftp://x/\", secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\" }\n",
        "destinations.a.sink.webhook.url begins with neither https:// nor http://",
    );
    refused(
        "[destinations.a]\nsink.webhook = { url = \"http://x/\", secret = \"hunter2\" }\n",
        "destinations.a.sink.webhook.secret is not valid",
    );
    let webhook = format!(
        "[destinations.a.sink.webhook]\nurl = \"https://x/\"\nsecret = \"{SECRET}\"\n\
         basic = {{ user = \"a\", password = \"hunter2\" }}\n"
    );
    refused(
        &format!("{webhook}headers.Authorization = \"hunter2\"\n"),
        "destinations.a.sink.webhook.headers.authorization decides the header authorization, and so \
         does basic",
    );
    refused(
        &format!("{webhook}headers.Content-Length = \"1\"\n"),
        "destinations.a.sink.webhook.headers.Content-Length cannot be configured",
    );
    refused(
        &format!(
            "{webhook}client_certificate = {{ certificate = \"hunter2\", key = \"hunter2\" }}\n"
        ),
        "destinations.a.sink.webhook.client_certificate.certificate is not a chain",
    );
    refused(
        "[destinations.a]\nsink.redis.url = { file = \"/nowhere/at/all\" }\n",
        "destinations.a.sink.redis.url file /nowhere/at/all: No such file",
    );
    refused(
        "[destinations.a]\npartitions = 3\nsink.file.path = \"-\"\n",
        "destinations.a.partitions must be 1, 2, 4, 8 or 16",
    );
    refused(
        "[destinations.\"a/b\"]\nsink.file.path = \"-\"\n",
        "destinations.a/b.name must be 1 to 64 characters of",
    );
}

#[test]
fn a_setting_that_is_probably_not_meant_is_a_warning() {
    let topic = |order: &str| {
        format!(
            "[destinations.a]\n{order}[destinations.a.sink.sns]\n\
             topic_arn = \"arn:aws:sns:us-east-1:123456789012:a.fifo\"\n\
             endpoint = \"https://sns.eu-central-1.amazonaws.com\"\n\
             access_key_id = \"a\"\nsecret_access_key = \"hunter2\\n\"\n"
        )
    };
    let check = ["config", "check", "--database", "postgres://db/a"];
    let ran = with_file(&topic(""), &check, &[]).ended(0);
    for warning in [
        "warning: destinations.a.order is \"none\"",
        "warning: destinations.a.sink.sns.endpoint is in eu-central-1, but topic_arn is in us-east-1",
        "warning: destinations.a.sink.sns.secret_access_key begins or ends with a space",
    ] {
        assert!(ran.stdout.contains(warning), "{ran:?}");
    }
    assert!(!ran.stdout.contains("hunter2"), "{ran:?}");
    let check = [&check[..], &["--json"]].concat();
    let ran = with_file(&topic("order = \"key\"\n"), &check, &[]).ended(0);
    assert_eq!(ran.json()["ok"], true, "{ran:?}");
    let warnings = ran.json()["warnings"].clone();
    assert_eq!(warnings.as_array().unwrap().len(), 2, "{warnings}");
}

#[test]
fn a_filter_is_a_table_or_a_text_and_is_refused_by_its_place() {
    let filter = |filter: &str| {
        format!("[destinations.a]\nfilter = {filter}\nsink.file.path = \"/dev/null\"\n")
    };
    let good = filter("{ \"/amount\" = { \"$gte\" = 99.5 }, tenant = \"acme\" }");
    let check = ["config", "check", "--database", "postgres://db/a"];
    with_file(&good, &check, &[]).ended(0);
    let name = "HAPAX__DESTINATIONS__A__FILTER";
    with_file(&good, &check, &[(name, "{\"/amount\": 1}")]).ended(0);
    let place = "destinations.a.filter./a.$gtt is an unknown operator: did you mean $gt?";
    refused(&filter("{ \"/a\" = { \"$gtt\" = 1 } }"), place);
    refused(&filter("'{\"/a\": {\"$gtt\": 1}}'"), place);
    refused_with(&good, &[(name, "{\"/a\": {\"$gtt\": 1}}")], place);
    refused(
        &filter("{ \"/a\" = 1e300 }"),
        "destinations.a.filter./a has more digits than a number of a table keeps",
    );
    refused(
        &filter("{ }"),
        "destinations.a.filter must have at least one condition",
    );
}

#[test]
fn a_setting_of_another_form_is_refused_with_the_form_that_is_expected() {
    let webhook =
        format!("[destinations.a.sink.webhook]\nurl = \"https://x/\"\nsecret = \"{SECRET}\"\n");
    for (setting, expected) in [
        ("mapping = { a = inf }", "mapping.a is inf or nan"),
        ("mapping = { a = nan }", "mapping.a is inf or nan"),
        (
            "mapping = \"$.data\"",
            "mapping is not valid JSON: write a path as a JSON string, such as '\"$.data\"'",
        ),
        (
            "allow = [\"127.0.0.1\"]",
            "allow[0] must be a network such as \"10.0.0.0/8\": a single address ends in /32",
        ),
    ] {
        let expected = format!("destinations.a.sink.webhook.{expected}");
        refused(&format!("{webhook}{setting}\n"), &expected);
    }
    for section in ["relay", "endpoints"] {
        let file = format!("[{section}]\nallow = [\"127.0.0.1\"]\n");
        refused(&file, &format!("{section}.allow[0] must be a network"));
    }
    let topic = "[destinations.a.sink.sns]\nmapping = \"{}\"\n\
        topic_arn = \"arn:aws:sns:us-east-1:123456789012:a\"\n\
        access_key_id = \"a\"\nsecret_access_key = \"a\"\n";
    refused(topic, "destinations.a.sink.sns.mapping is unknown");
    let check = ["config", "check", "--database", "postgres://db/a"];
    let ran = with_file(topic, &check, &[]);
    assert!(!ran.stderr.contains("did you mean"), "{ran:?}");
}

#[test]
fn keys_and_tokens_that_can_never_work_are_refused() {
    refused(
        "[secrets]\nkey = \"hunter2\"\n",
        "secrets.key is not 32 bytes in base64",
    );
    let token = |name: &str, text: &str| {
        format!("[admin.tokens.{name}]\ntoken = \"{text}\"\nrole = \"viewer\"\n")
    };
    refused(
        &token("ann", "hunter2"),
        "admin.tokens.ann.token has fewer than 16 characters",
    );
    let same = "hunter2hunter2hunter2";
    refused(
        &format!("{}{}", token("ann", same), token("bob", same)),
        "admin.tokens.bob.token is also the token of ann",
    );
    refused(
        "[relay]\nkinds_at_run_time = [\"webhook\", \"file\"]\n",
        "relay.kinds_at_run_time may contain webhook, nats",
    );
    let file = "[database]\nurl = { file = \"/nowhere/at/all\" }\n";
    let ran = with_file(file, &["config", "check"], &[]).ended(2);
    assert!(ran.stderr.contains("database.url file /nowhere"), "{ran:?}");
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_sink_that_this_build_has_not_is_refused_by_its_feature() {
    let kafka = "[destinations.a]\nsink.kafka = { brokers = [\"k:9092\"], topic = \"t\" }\n";
    let said = "is not in this build: build hapax-server with the feature \"kafka\"";
    refused(kafka, &format!("destinations.a.sink.kafka {said}"));
}

#[test]
fn without_a_database_it_says_how_to_name_one() {
    let ran = run(&["migrate"]).ended(2);
    for way in ["--database", "HAPAX__DATABASE__URL", "[database] url"] {
        assert!(ran.stderr.contains(way), "{ran:?}");
    }
}

#[test]
fn a_secret_may_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("url");
    fs::write(&path, "postgres://postgres@127.0.0.1:1/none\n").unwrap();
    let file = format!("[database]\nurl = {{ file = {path:?} }}\n");
    let ran = with_file(&file, &["migrate"], &[]).ended(1);
    assert!(ran.stderr.contains("cannot be reached"), "{ran:?}");
    let path = path.to_str().unwrap();
    let ran = with_file("", &["migrate"], &[("HAPAX__DATABASE__URL__FILE", path)]).ended(1);
    assert!(ran.stderr.contains("cannot be reached"), "{ran:?}");
}

#[test]
fn completions_know_every_verb() {
    for shell in ["bash", "zsh", "fish"] {
        let printed = run(&["completions", shell]).ended(0).stdout;
        for verb in [
            "relay",
            "migrate",
            "doctor",
            "events",
            "deliveries",
            "dead-letters",
            "destinations",
            "config",
        ] {
            assert!(printed.contains(verb), "{shell} {verb}");
        }
    }
}

#[test]
fn help_and_wrong_usage_have_their_exit_codes() {
    run(&["--help"]).ended(0);
    run(&["--version"]).ended(0);
    run(&[]).ended(2);
    run(&["rely"]).ended(2);
    run(&["config", "check", "--config", "/nowhere/at/all"]).ended(2);
}

#[track_caller]
fn refused(file: &str, expected: &str) {
    refused_with(file, &[], expected);
}

#[track_caller]
fn refused_with(file: &str, environment: &[(&str, &str)], expected: &str) {
    let arguments = ["config", "check", "--database", "postgres://db/a"];
    let ran = with_file(file, &arguments, environment).ended(2);
    assert!(ran.stderr.contains(expected), "{expected}: {ran:?}");
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
}

#[track_caller]
fn with_file(file: &str, arguments: &[&str], environment: &[(&str, &str)]) -> ProgramOutput {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    fs::write(&path, file).unwrap();
    let mut command = hapax(arguments);
    command
        .arg("--config")
        .arg(path)
        .envs(environment.iter().copied());
    run_to_end(command)
}

#[test]
fn a_database_of_another_kind_is_refused_with_what_is_accepted() {
    for url in ["mysql://u:hunter2@db/a", "shop", "sqlite:"] {
        let refused = run(&["events", "list", "--database", url]).ended(2);
        let said = &refused.stderr;
        assert!(
            said.contains("--database must be a PostgreSQL URL"),
            "{said}"
        );
        assert!(said.contains("sqlite:shop.db"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    for file in [
        "sqlite:no.db",
        "sqlite:///no/such.db",
        "no.db",
        "no.sqlite3",
    ] {
        let refused = run(&["events", "list", "--database", file]).ended(1);
        assert!(
            refused.stderr.contains("there is no database"),
            "{refused:?}"
        );
    }
}
