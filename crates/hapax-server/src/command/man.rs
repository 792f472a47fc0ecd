//! `hapax man`: the manual, a page for each verb, for a package to install.
//!
//! The pages are made of the same descriptions as `--help`, so that there is nothing to keep in step. What no
//! flag says, exit codes and files, stands at the end of the first page.

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
    /// The folder that the pages are written into
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

const SOURCE: &str = concat!("hapax ", env!("CARGO_PKG_VERSION"));
const ENDING: &str = include_str!("man/ending.roff");
const SEE_ALSO: &str = ".SH \"SEE ALSO\"\n\\fBhapax\\fR(1)\n";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    fs::create_dir_all(&args.dir)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    // From now on every verb knows its whole name and the flags of all of them.
    command.build();
    write(&command, ENDING, &args.dir)?;
    Ok(ExitCode::SUCCESS)
}

fn write(command: &clap::Command, ending: &str, folder: &Path) -> io::Result<()> {
    let mut page = Vec::new();
    // No date: the same sources make the same pages.
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
