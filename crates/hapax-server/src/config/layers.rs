//! The layers of the relay: its defaults, and the conversion of the merged layers into [`Config`].

use std::{ffi::OsString, path::Path};

use hapax_runtime::config::{Given, Layers, Wrong};

use super::Config;

/// The built-in defaults. The file is also the documentation of all settings.
pub(crate) const DEFAULT: &str = include_str!("../hapax.default.toml");

/// Reads all layers.
pub(crate) fn read_layers(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    flags: impl IntoIterator<Item = Given>,
) -> Result<Layers, Wrong> {
    Layers::read(DEFAULT, file, environment, flags)
}

impl Config {
    /// The settings as types. Every section is checked.
    pub(crate) fn of(layers: &Layers) -> Result<Self, Wrong> {
        let config: Self = layers.root().read()?;
        config.check().map_err(|wrong| layers.with_origin(wrong))?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hapax_runtime::config::Origin;

    use super::*;

    #[test]
    fn the_defaults_are_complete_and_sound() {
        let config = Config::of(&layers("", &[], []).unwrap()).unwrap();
        assert!(config.destinations.is_empty());
        assert!(config.database.url.is_none());
    }

    #[test]
    fn the_variables_of_opentelemetry_are_read_below_our_own() {
        let env = [
            ("HAPAX__TELEMETRY__SAMPLE", "0.25"),
            ("HAPAX__TELEMETRY__SERVICE", "relay-7"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Basic%20c2VjcmV0",
            ),
            ("OTEL_SERVICE_NAME", "relay"),
        ];
        let config = Config::of(&layers("", &env, []).unwrap()).unwrap();
        let export = config
            .telemetry
            .export(|| std::time::SystemTime::UNIX_EPOCH);
        let export = export.unwrap().unwrap();
        assert_eq!(export.service, "relay-7");
        assert!((config.telemetry.sample - 0.25).abs() < f64::EPSILON);
        let shown = format!("{config:?} {export:?}");
        assert!(
            shown.contains("authorization") && !shown.contains("c2VjcmV0"),
            "{shown}"
        );
    }

    #[test]
    fn what_cannot_be_exported_to_is_refused_without_being_shown() {
        for (file, said) in [
            (
                "otlp_endpoint = \"http://a:secret@b:4318\"",
                "telemetry.otlp_endpoint",
            ),
            (
                "sample = 1.5",
                "telemetry.sample must be a number from 0 to 1",
            ),
        ] {
            let refused = layers(&format!("[telemetry]\n{file}\n"), &[], []).unwrap();
            let refused = Config::of(&refused).unwrap_err().to_string();
            assert!(
                refused.contains(said) && !refused.contains("secret"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_later_layer_goes_over_an_earlier_one() {
        let file = "[relay]\nlease = \"7s\"\npoll = \"70ms\"\n[log]\nlevel = \"warn\"\n";
        let env = [
            ("HAPAX__RELAY__POLL", "60ms"),
            ("HAPAX__LOG__LEVEL", "error"),
        ];
        let flag = Given::text("log.level", "--log-level", "debug");
        let layers = layers(file, &env, [flag]).unwrap();
        let config = Config::of(&layers).unwrap();
        assert_eq!(config.relay.lease.to_string(), "7s");
        assert_eq!(config.relay.poll.to_string(), "60ms");
        assert_eq!(config.log.level, super::super::sections::Level::Debug);
        assert_eq!(
            layers.origin(&["log", "level"]),
            Origin::Flag("--log-level".into())
        );
        let variable = Origin::Variable("HAPAX__RELAY__POLL".into());
        assert_eq!(layers.origin(&["relay", "poll"]), variable);
        assert_eq!(layers.origin(&["relay", "listen"]), Origin::Default);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_one() {
        check(
            "[relay]\nleese = \"7s\"\n",
            "relay.leese is unknown: did you mean lease?",
        );
        check(
            "[relai]\nlease = \"7s\"\n",
            "relai is unknown: did you mean relay?",
        );
        check_with(
            "",
            &[("HAPAX__RELAY__LEESE", "7s")],
            "HAPAX__RELAY__LEESE is unknown: did you mean lease?",
        );
        check(
            "[log]\nlevel = \"wran\"\n",
            "log.level must be one of error, warn, info, debug, trace, not \"wran\": did you mean warn?",
        );
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_refused_without_being_shown() {
        check(
            "[database]\nconnections = \"hunter2\"\n",
            "database.connections must be a whole number from 0 to 65535",
        );
        check_with(
            "",
            &[("HAPAX__DATABASE__POOLED", "hunter2")],
            "HAPAX__DATABASE__POOLED must be true or false",
        );
        check(
            "[database]\nurl = 7\n",
            "database.url must be a text or { file = \"/path\" }",
        );
        check(
            "[relay]\nlease = \"1ms\"\n",
            "relay.lease must be between 1s and 10m, not 1ms",
        );
    }

    #[test]
    fn settings_without_their_names_are_refused() {
        for file in ["log = [\"human\", \"info\"]\n", "log = \"human\"\n"] {
            check(file, "log must be a table of settings");
        }
        check_with(
            "",
            &[("HAPAX__LOG", "human, info")],
            "HAPAX__LOG must be a table of settings",
        );
    }

    #[test]
    fn a_file_that_is_no_toml_is_refused_by_line_and_not_quoted() {
        let error = layers("[database]\nurl = hunter2\n", &[], [])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 2") && !error.contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn the_environment_speaks_of_destinations_as_the_file_spells_them() {
        let file = "[destinations.Order-Desk]\nsink.file.path = \"-\"\n";
        let env = [
            ("HAPAX__DESTINATIONS__ORDER_DESK__EVENTS", "a.*, b.*"),
            ("HAPAX__DESTINATIONS__ORDER_DESK__PARTITIONS", "4"),
            ("HAPAX__DESTINATIONS__ORDER_DESK__PAUSED", "true"),
            ("HAPAX__DATABASE__URL__FILE", "/run/secrets/url"),
        ];
        let config = Config::of(&layers(file, &env, []).unwrap()).unwrap();
        let spec = &config.destinations["Order-Desk"];
        assert_eq!(
            (spec.events.len(), spec.partitions, spec.paused),
            (2, 4, true)
        );
        let file = super::super::Secret::File("/run/secrets/url".into());
        assert_eq!(config.database.url, Some(file));
    }

    #[test]
    fn a_number_of_the_environment_goes_as_far_as_one_of_the_file() {
        let file = "[destinations.a]\nsink.redis.url = \"redis://h\"\n";
        let name = "HAPAX__DESTINATIONS__A__SINK__REDIS__LENGTH_MAX";
        let number = layers(file, &[(name, "9223372036854775807")], []).unwrap();
        Config::of(&number).unwrap();
        let expected = format!("{name} must be a whole number");
        check_with(file, &[(name, "9223372036854775808")], &expected);
    }

    #[test]
    fn an_admin_api_for_the_network_needs_tokens() {
        let open = "[admin]\nlisten = \"0.0.0.0:9465\"\n";
        let error = Config::of(&layers(open, &[], []).unwrap()).unwrap_err();
        assert_eq!(error.path(), "admin.listen");
        let tokens = format!("{open}[admin.tokens.ann]\ntoken = \"t\"\nrole = \"viewer\"\n");
        Config::of(&layers(&tokens, &[], []).unwrap()).unwrap();
    }

    #[track_caller]
    fn check(file: &str, expected: &str) {
        check_with(file, &[], expected);
    }

    #[track_caller]
    fn check_with(file: &str, environment: &[(&str, &str)], expected: &str) {
        let read = layers(file, environment, []).and_then(|layers| Config::of(&layers));
        let error = read.unwrap_err().to_string();
        let said = error
            .rsplit_once("file.toml: ")
            .map_or(error.as_str(), |(_, rest)| rest);
        assert_eq!(said, expected);
    }

    fn layers<const N: usize>(
        file: &str,
        environment: &[(&str, &str)],
        flags: [Given; N],
    ) -> Result<Layers, Wrong> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.toml");
        fs::write(&path, file).unwrap();
        let environment = environment
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        read_layers(Some(&path), environment, flags)
    }
}
