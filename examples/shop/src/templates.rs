//! The default mail templates, which an operator can replace.

use std::{io, path::Path};

use crate::files;

const TEMPLATES: [(&str, &str); 3] = [
    (
        "welcome.subject.txt",
        include_str!("../templates/welcome.subject.txt"),
    ),
    (
        "welcome.text.txt",
        include_str!("../templates/welcome.text.txt"),
    ),
    ("welcome.html", include_str!("../templates/welcome.html")),
];

/// Writes the templates to `folder`; existing files are not changed.
pub(crate) fn write_out(folder: &Path) -> io::Result<()> {
    files::make_private(folder)?;
    for (name, text) in TEMPLATES {
        files::make_once(&folder.join(name), text.as_bytes(), 0o600)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_the_operator_wrote_stays() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("templates");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("welcome.html"), "ours").unwrap();
        write_out(&place).unwrap();
        write_out(&place).unwrap();
        let text = |name: &str| fs::read_to_string(place.join(name)).unwrap();
        assert_eq!(text("welcome.html"), "ours");
        assert_eq!(text("welcome.text.txt"), TEMPLATES[1].1);
        assert_eq!(fs::read_dir(&place).unwrap().count(), TEMPLATES.len());
    }
}
