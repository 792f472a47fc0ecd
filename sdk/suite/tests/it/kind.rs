//! Kinds of services: a language, a framework and a driver.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hapax_testkit::program::packages;

/// A language with a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Node,
    Python,
}

/// A kind of service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) language: Language,
    /// The framework, or `EXAMPLE`.
    pub(crate) framework: &'static str,
    pub(crate) driver: &'static str,
}

/// The framework of the services in `examples/sql-contract`.
const EXAMPLE: &str = "example";

pub(crate) const EXPRESS: Kind = Kind::node("express", "pg");
pub(crate) const FASTAPI: Kind = Kind::python("fastapi", "psycopg");
pub(crate) const EXAMPLES: [Kind; 2] =
    [Kind::node(EXAMPLE, "pg"), Kind::python(EXAMPLE, "psycopg")];

impl Kind {
    pub(crate) const fn node(framework: &'static str, driver: &'static str) -> Self {
        Self {
            language: Language::Node,
            framework,
            driver,
        }
    }

    pub(crate) const fn python(framework: &'static str, driver: &'static str) -> Self {
        Self {
            language: Language::Python,
            framework,
            driver,
        }
    }

    /// The command that runs the service on this port of loopback.
    pub(crate) fn command(self, database: &str, port: u16) -> Command {
        let mut command = match self.language {
            Language::Node => self.node_command(),
            Language::Python => self.python_command(port),
        };
        command
            .env("HAPAX_FRAMEWORK", self.framework)
            .env("HAPAX_DRIVER", self.driver)
            .env("PORT", port.to_string())
            .env("DATABASE_URL", database)
            .stdin(Stdio::null());
        command
    }

    /// Node looks for packages in the folder of a source, so the sources were copied to the packages.
    fn node_command(self) -> Command {
        let mut command = Command::new("node");
        if self.framework == EXAMPLE {
            command.arg("example/app.js");
        } else {
            command.arg("main.mjs");
        }
        command.current_dir(installed("node"));
        command
    }

    fn python_command(self, port: u16) -> Command {
        let mut command = Command::new("python3");
        let suite = Path::new(env!("CARGO_MANIFEST_DIR"));
        if self.framework == EXAMPLE {
            command
                .args(["-m", "uvicorn", "app:app", "--no-access-log", "--port"])
                .arg(port.to_string())
                .current_dir(suite.join("../../examples/sql-contract/python"));
        } else {
            command
                .arg("main.py")
                .current_dir(suite.join("services/python"));
        }
        command
            .env("PYTHONPATH", installed("python"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

fn installed(language: &str) -> PathBuf {
    packages(
        env!("CARGO_TARGET_TMPDIR"),
        &format!("sdk/services/{language}"),
    )
}
