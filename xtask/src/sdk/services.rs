//! The services of the suite: pinned packages, and the archives of this project.

use std::{fs, path::Path};

use anyhow::Context as _;

use super::{Folders, node, python, tree};
use crate::packages;

const SOURCES: &str = "sdk/suite/services";
/// The example whose test runs beside the services.
const EXAMPLE: &str = "examples/sql-contract/node/app.js";
/// File that says that the packages of a folder are complete.
const MARK: &str = "installed";

/// Installs both archives in empty projects, and for the services.
pub(super) fn install(folders: &Folders) -> anyhow::Result<()> {
    let installed = node::install_archive(folders)?;
    node_services(folders, &installed)?;
    python::install_archive(folders)?;
    let packages = folders.target.join("services/python");
    let list = folders.root.join(SOURCES).join("python/requirements.txt");
    packages::python(&list, &packages)?;
    python::install_archive_into(folders, &packages)
}

/// Node looks for packages in the folder of a source, so the sources are copied to the packages.
fn node_services(folders: &Folders, package: &Path) -> anyhow::Result<()> {
    let sources = folders.root.join(SOURCES).join("node");
    let folder = folders.target.join("services/node");
    tree::clear(&folder)?;
    tree::copy_into(&sources, &folder, &[])?;
    node::install(&folder)?;
    node::generate(&folder)?;
    let target = folder.join("node_modules/hapax");
    let _before = fs::remove_dir_all(&target);
    tree::copy_into(package, &target, &[])?;
    let example = folder.join("example");
    fs::create_dir_all(&example)?;
    fs::copy(folders.root.join(EXAMPLE), example.join("app.js")).context(EXAMPLE)?;
    fs::write(folder.join(MARK), "")?;
    Ok(())
}
