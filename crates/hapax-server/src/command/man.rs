//! `hapax man`: writes the manual pages, one per command, for a package to install.
//!
//! The pages are generated from the same descriptions as `--help`. Exit codes and files are
//! described at the end of the first page.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::CommandFactory as _;
use clap_mangen::Man;

use super::{Cli, Failure};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder for the pages
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

const SOURCE: &str = concat!("hapax ", env!("CARGO_PKG_VERSION"));
const ENDING: &str = include_str!("man/ending.roff");
const SEE_ALSO: &str = ".SH \"SEE ALSO\"\n\\fBhapax\\fR(1)\n";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    fs::create_dir_all(&args.dir)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    // After this call every subcommand knows its full name and all global flags.
    command.build();
    write(&command, ENDING, &args.dir)?;
    Ok(ExitCode::SUCCESS)
}

fn write(command: &clap::Command, ending: &str, folder: &Path) -> io::Result<()> {
    let mut page = Vec::new();
    // No date, so that the same sources produce the same pages.
    let man = Man::new(command.clone())
        .manual("Hapax")
        .source(SOURCE)
        .date("");
    man.render(&mut page)?;
    page.write_all(ending.as_bytes())?;
    fs::write(folder.join(man.get_filename()), page)?;
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    for verb in shown {
        write(verb, SEE_ALSO, folder)?;
    }
    Ok(())
}
