//! Files of the plots, in a folder beside the page that links to them.
//!
//! A page and the plots of its new parts are written together. Afterwards, plots to which the page
//! has no link are removed, so no plot of an earlier run remains without its table.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::svg::MARK;

/// The folder of the plots, relative to the page.
const FOLDER: &str = "plots";

/// A plot that is drawn.
#[derive(Clone, Debug)]
pub(in crate::run) struct Picture {
    /// The name of the file.
    pub(super) file: String,
    /// The text for readers who do not see the plot.
    pub(super) alt: String,
    /// The content of the file.
    pub(super) svg: String,
}

/// Writes the plot as an image of Markdown.
impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("![")?;
        for letter in self.alt.chars() {
            if matches!(letter, '[' | ']' | '\\' | '`' | '*' | '_' | '<') {
                f.write_str("\\")?;
            }
            write!(f, "{letter}")?;
        }
        write!(f, "]{}", target(&self.file))
    }
}

/// Writes the page to `out` and the plots beside it, and removes the plots of earlier runs.
pub(in crate::run) fn write<'a>(
    out: &Path,
    page: &str,
    pictures: impl IntoIterator<Item = &'a Picture>,
) -> anyhow::Result<()> {
    let folder = out.with_file_name(FOLDER);
    for Picture { file, svg, .. } in pictures {
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let path = folder.join(file);
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    fs::write(out, page).with_context(|| format!("cannot write {}", out.display()))?;
    for path in unlinked(&folder, page)? {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// The plots in the folder to which the page has no link.
fn unlinked(folder: &Path, page: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut unlinked = Vec::new();
    if !folder.is_dir() {
        return Ok(unlinked);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        let is_linked = page.contains(&target(&name.to_string_lossy()));
        // `--out` may name a folder that contains files of other programs.
        let is_plot = fs::read(&path).is_ok_and(|file| file.starts_with(MARK.as_bytes()));
        if is_plot && !is_linked {
            unlinked.push(path);
        }
    }
    Ok(unlinked)
}

/// The target of a link to a file.
fn target(file: &str) -> String {
    format!("({FOLDER}/{file})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(file: &str, content: &str) -> Picture {
        Picture {
            file: file.to_owned(),
            alt: "a line [p50]".to_owned(),
            svg: format!("{MARK}\n{content}"),
        }
    }

    #[test]
    fn a_plot_is_linked_with_its_text() {
        let link = picture("capacity.svg", "").to_string();
        assert_eq!(link, r"![a line \[p50\]](plots/capacity.svg)");
    }

    #[test]
    fn plots_without_a_link_are_removed_and_files_of_other_programs_are_kept() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("RESULTS.md");
        let plots = parent.path().join(FOLDER);
        let [kept, old] = ["relay.svg", "old.svg"].map(|file| picture(file, "earlier"));
        write(&out, &format!("{kept}\n{old}\n"), [&kept, &old]).unwrap();
        assert!(plots.join("old.svg").exists());
        fs::write(plots.join("other.svg"), "<svg/>").unwrap();

        let new = picture("capacity.svg", "new");
        let page = format!("{kept}\n{new}\n");
        write(&out, &page, [&new]).unwrap();
        assert_eq!(fs::read_to_string(&out).unwrap(), page);
        let entries = fs::read_dir(&plots).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["capacity.svg", "other.svg", "relay.svg"]);
        let left = fs::read_to_string(plots.join("relay.svg")).unwrap();
        assert!(left.ends_with("earlier"), "{left}");
    }

    #[test]
    fn a_plot_of_an_earlier_run_is_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("RESULTS.md");
        for content in ["earlier", "new"] {
            let picture = picture("capacity.svg", content);
            write(&out, &picture.to_string(), [&picture]).unwrap();
        }
        let left = fs::read_to_string(parent.path().join("plots/capacity.svg")).unwrap();
        assert!(left.ends_with("new"), "{left}");
    }

    #[test]
    fn a_page_without_plots_creates_no_folder() {
        let parent = tempfile::tempdir().unwrap();
        write(&parent.path().join("RESULTS.md"), "# Console\n", []).unwrap();
        assert!(!parent.path().join(FOLDER).exists());
    }
}
