//! The seeded bugs: patches in `proof/mutants`, which are applied to a copy of the project.
//!
//! The project itself contains no bug. Its copy contains all of them, and a switch that turns one
//! on in a process (`switch.patch`), so that one build serves for every bug.

use std::{
    collections::BTreeSet, fs, io::Write as _, os::unix::fs::symlink, path::Path, process::Stdio,
};

use anyhow::{Context as _, bail};

use crate::{step::from_a_shell, tree::Tree};

/// The folder of the patches.
pub(crate) const FOLDER: &str = "proof/mutants/";

/// Brings the copy of the project in the folder `source` up to date, and applies all patches to it.
///
/// Only files that differ are written, so that the next build compiles only what has changed. The
/// files that the patches change are first made in the folder `patched` next to the copy.
pub(crate) fn copy(root: &Path, source: &Path) -> anyhow::Result<()> {
    let project = Tree::read(root)?;
    let folder = source.with_file_name("patched");
    let failures = apply(&project, &folder)?;
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    let patched = Tree::read(&folder)?;
    let paths: BTreeSet<&str> = project
        .iter()
        .chain(patched.iter())
        .map(|it| it.0)
        .collect();
    for path in &paths {
        let is_patched = patched.holds(path);
        let from = if is_patched { folder.as_path() } else { root };
        update(&from.join(path), &source.join(path)).with_context(|| (*path).to_owned())?;
    }
    for (path, _) in Tree::read(source)?.iter() {
        if !paths.contains(path) {
            fs::remove_file(source.join(path))?;
        }
    }
    Ok(())
}

/// Copies a file unless the copy already has its contents. A link to a folder stays a link.
fn update(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.is_dir() {
        let target = fs::read_link(from)?;
        if fs::read_link(to).ok().as_ref() != Some(&target) {
            make_parent(to)?;
            symlink(target, to)?;
        }
        return Ok(());
    }
    if fs::read(to).ok() == Some(fs::read(from)?) {
        return Ok(());
    }
    make_parent(to)?;
    fs::copy(from, to)?;
    Ok(())
}

/// Writes the files that the patches change into an empty `folder`, and applies all patches to
/// them, sorted by name. Returns a line for each patch that cannot be applied.
pub(crate) fn apply(project: &Tree, folder: &Path) -> anyhow::Result<Vec<String>> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let patches: Vec<_> = project.within(FOLDER, ".patch").collect();
    for path in patches.iter().flat_map(|(_, patch)| changed(patch)) {
        if let Some(text) = project.text(path) {
            make_parent(&folder.join(path))?;
            fs::write(folder.join(path), text)?;
        }
    }
    let mut failures = Vec::new();
    for (path, patch) in patches {
        let failed = apply_one(patch, folder)?;
        failures.extend(failed.map(|why| format!("{path}: does not apply: {why}")));
    }
    Ok(failures)
}

/// The files that a patch changes or adds.
fn changed(patch: &str) -> impl Iterator<Item = &str> {
    patch.lines().filter_map(|line| line.strip_prefix("+++ b/"))
}

/// Applies a patch to the files in `folder`. Returns why it cannot be applied.
fn apply_one(patch: &str, folder: &Path) -> anyhow::Result<Option<String>> {
    let mut git = from_a_shell("git");
    // Git must not find the repository of the project around the folder: it would apply the patch
    // to nothing, because the paths of the patch are outside the folder.
    git.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder));
    git.args(["apply", "-"]).current_dir(folder);
    git.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut git = git.spawn().context("cannot run git")?;
    let mut stdin = git.stdin.take().context("git has no standard input")?;
    stdin.write_all(patch.as_bytes())?;
    drop(stdin);
    let output = git.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok((!output.status.success()).then_some(said))
}

fn make_parent(file: &Path) -> anyhow::Result<()> {
    let folder = file.parent().context("a file has a folder")?;
    Ok(fs::create_dir_all(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "A bug.\n\n--- a/a.rs\n+++ b/a.rs\n@@ -1,1 +1,1 @@\n-sound\n+broken\n\
        --- /dev/null\n+++ b/new/b.rs\n@@ -0,0 +1,1 @@\n+added\n";

    #[test]
    fn a_copy_has_the_patches_and_only_files_that_changed_are_written_again() {
        let folder = std::env::temp_dir().join(format!("mutants-{}", std::process::id()));
        let (root, source) = (folder.join("root"), folder.join("target/source"));
        let put = |path: &str, text: &str| {
            make_parent(&root.join(path)).unwrap();
            fs::write(root.join(path), text).unwrap();
        };
        put("a.rs", "sound\n");
        put("kept.rs", "kept\n");
        put("gone.rs", "gone\n");
        put("folder/c.rs", "linked\n");
        symlink("folder", root.join("link")).unwrap();
        symlink("kept.rs", root.join("kept-too.rs")).unwrap();
        put("proof/mutants/a.patch", PATCH);
        copy(&root, &source).unwrap();
        let text = |path: &str| fs::read_to_string(source.join(path)).unwrap();
        assert_eq!(text("a.rs"), "broken\n");
        assert_eq!(text("new/b.rs"), "added\n");
        assert_eq!(text("gone.rs"), "gone\n");
        assert_eq!(text("link/c.rs"), "linked\n");
        assert_eq!(text("kept-too.rs"), "kept\n");

        let written = |path: &str| fs::metadata(source.join(path)).unwrap().modified().unwrap();
        let before = (written("a.rs"), written("kept.rs"));
        fs::remove_file(root.join("gone.rs")).unwrap();
        copy(&root, &source).unwrap();
        assert_eq!((written("a.rs"), written("kept.rs")), before);
        assert!(!source.join("gone.rs").exists());

        put("a.rs", "moved\n");
        let error = copy(&root, &source).unwrap_err().to_string();
        assert!(
            error.starts_with("proof/mutants/a.patch: does not apply: "),
            "{error}"
        );
        assert_eq!(text("a.rs"), "broken\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
