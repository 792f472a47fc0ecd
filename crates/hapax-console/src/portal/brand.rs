//! The brand of the operator: a name, a logo and a color, as pages show them.
//!
//! The name is text. A logo is an image of another host, whose origin the policy permits for images
//! alone, or a file that the portal serves. The color is in a separate style sheet, so that the policy
//! needs no exception; it is never behind small text, and the color of text on it is computed.

use std::{fs::File, io::Read as _, path::Path};

use axum::{
    body::Bytes,
    response::{IntoResponse as _, Response},
};
use hapax::key::hex;

use super::limits::{PORTAL_LOGO_BYTES_MAX, PORTAL_NAME_BYTES_MAX};
use http::{HeaderValue, header};

use super::{FOLDER, PortalOptions, address};
use crate::auth::hash;

/// The name if there is none in the settings.
const NAME: &str = "Webhooks";
/// The kinds of images that a file may be, by the end of its name.
const KINDS: [(&str, &str); 6] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("webp", "image/webp"),
    ("gif", "image/gif"),
    ("svg", "image/svg+xml"),
];

/// A setting of the portal that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPortal {
    /// The setting, such as `colour`.
    pub setting: &'static str,
    /// What is wrong; continues a sentence that begins with the setting.
    pub problem: String,
}

impl BadPortal {
    pub(super) fn new(setting: &'static str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self { setting, problem }
    }
}

impl std::fmt::Display for BadPortal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.setting, self.problem)
    }
}

impl std::error::Error for BadPortal {}

/// The brand.
pub(super) struct Brand {
    /// The name of the product.
    pub(super) name: String,
    logo: Option<Logo>,
    style: Option<BrandFile>,
}

enum Logo {
    Url(String),
    File(BrandFile),
}

/// A file that the portal serves, named by its hash.
struct BrandFile {
    path: String,
    kind: &'static str,
    content: Bytes,
}

/// Checks the name and the color, and the logo unless it is a file.
pub(super) fn check(options: &PortalOptions) -> Result<(), BadPortal> {
    let is_odd = |it: &String| {
        it.is_empty() || it.len() > PORTAL_NAME_BYTES_MAX || it.contains(char::is_control)
    };
    if options.name.as_ref().is_some_and(is_odd) {
        let problem =
            format!("must be 1 to {PORTAL_NAME_BYTES_MAX} bytes without control characters");
        return Err(BadPortal::new("name", problem));
    }
    if let Some(colour) = &options.colour {
        colour_of(colour)?;
    }
    let logo = options.logo.as_deref().filter(|it| is_url(it));
    if logo.is_some_and(|it| address::origin_of(it).is_none()) {
        let problem = "must be a URL such as https://example.com/logo.svg, or the path of a file";
        return Err(BadPortal::new("logo", problem));
    }
    Ok(())
}

impl Brand {
    /// Reads the brand, and the file of its logo.
    pub(super) fn read(options: &PortalOptions) -> Result<Self, BadPortal> {
        check(options)?;
        let logo = options.logo.as_deref();
        let logo = logo.map(|it| {
            if is_url(it) {
                return Ok(Logo::Url(it.to_owned()));
            }
            file(it).map(Logo::File)
        });
        let colour = options.colour.as_deref().map(colour_of).transpose()?;
        Ok(Self {
            name: options.name.clone().unwrap_or_else(|| NAME.to_owned()),
            logo: logo.transpose()?,
            style: colour.map(style),
        })
    }

    /// The address of the logo.
    pub(super) fn logo(&self) -> Option<&str> {
        self.logo.as_ref().map(|logo| match logo {
            Logo::Url(url) => url.as_str(),
            Logo::File(file) => file.path.as_str(),
        })
    }

    /// The origin of a logo on another host.
    pub(super) fn logo_origin(&self) -> Option<&str> {
        match self.logo.as_ref()? {
            Logo::Url(url) => address::origin_of(url),
            Logo::File(_) => None,
        }
    }

    /// The path of the style sheet with the color.
    pub(super) fn style(&self) -> Option<&str> {
        self.style.as_ref().map(|it| it.path.as_str())
    }

    /// Serves a file of the brand.
    pub(super) fn serve(&self, name: &str) -> Option<Response> {
        let logo = self.logo.as_ref().and_then(|logo| match logo {
            Logo::File(file) => Some(file),
            Logo::Url(_) => None,
        });
        let mut files = logo.into_iter().chain(&self.style);
        let found = files.find(|it| it.path.strip_prefix(FOLDER) == Some(name))?;
        let keep = HeaderValue::from_static("public, max-age=31536000, immutable");
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static(found.kind)),
            (header::CACHE_CONTROL, keep),
        ];
        Some((headers, found.content.clone()).into_response())
    }
}

impl BrandFile {
    fn new(name: &str, end: &str, kind: &'static str, content: Bytes) -> Self {
        let tag = hex(&hash(&content)[..8]);
        Self {
            path: format!("{FOLDER}{name}-{tag}.{end}"),
            kind,
            content,
        }
    }
}

fn is_url(logo: &str) -> bool {
    logo.contains(':') || logo.starts_with("//")
}

fn file(path: &str) -> Result<BrandFile, BadPortal> {
    let end = Path::new(path).extension().and_then(|it| it.to_str());
    let end = end.unwrap_or_default().to_ascii_lowercase();
    let Some((end, kind)) = KINDS.into_iter().find(|(known, _)| *known == end) else {
        let problem = "must be a PNG, JPEG, WebP, GIF or SVG file";
        return Err(BadPortal::new("logo", problem));
    };
    let cannot = |error: std::io::Error| BadPortal::new("logo", format!("{path}: {error}"));
    // One byte more than is allowed, so that a larger file is refused.
    let most = u64::try_from(PORTAL_LOGO_BYTES_MAX).unwrap_or(u64::MAX);
    let mut content = Vec::new();
    let opened = File::open(path).map_err(cannot)?;
    let read = opened
        .take(most.saturating_add(1))
        .read_to_end(&mut content);
    read.map_err(cannot)?;
    if content.len() > PORTAL_LOGO_BYTES_MAX {
        let problem = format!("{path} has more than {PORTAL_LOGO_BYTES_MAX} bytes");
        return Err(BadPortal::new("logo", problem));
    }
    Ok(BrandFile::new("logo", end, kind, content.into()))
}

/// The red, green and blue of a color.
fn colour_of(text: &str) -> Result<[u8; 3], BadPortal> {
    let digits = text.strip_prefix('#').filter(|it| it.len() == 6);
    let digits = digits.filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let number = digits.and_then(|it| u32::from_str_radix(it, 16).ok());
    let number = number.ok_or_else(|| BadPortal::new("colour", "must be like #0b6e4f"))?;
    let [_, red, green, blue] = number.to_be_bytes();
    Ok([red, green, blue])
}

/// The style sheet with a color: the line below the header, and main buttons.
fn style([red, green, blue]: [u8; 3]) -> BrandFile {
    let colour = format!("#{red:02x}{green:02x}{blue:02x}");
    let ink = if luminance([red, green, blue]) > MIDDLE {
        "#000000"
    } else {
        "#ffffff"
    };
    let text = format!(
        "body > header {{ border-bottom: 3px solid {colour}; }}\n\
         button.main {{ color: {ink}; background: {colour}; border-color: {colour}; }}\n"
    );
    BrandFile::new("brand", "css", "text/css; charset=utf-8", text.into())
}

/// The luminance of which black and white text have the same contrast (WCAG 2.2).
const MIDDLE: f64 = 0.179;

/// The relative luminance of a color, from 0 to 1 (WCAG 2.2).
fn luminance(colour: [u8; 3]) -> f64 {
    let [red, green, blue] = colour.map(|part| {
        let part = f64::from(part) / 255.0;
        if part <= 0.040_45 {
            part / 12.92
        } else {
            ((part + 0.055) / 1.055).powf(2.4)
        }
    });
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(logo: Option<&str>, colour: Option<&str>) -> PortalOptions {
        PortalOptions {
            logo: logo.map(str::to_owned),
            colour: colour.map(str::to_owned),
            ..PortalOptions::default()
        }
    }

    #[test]
    fn a_colour_is_six_digits_and_nothing_of_a_style() {
        assert!(check(&options(None, Some("#0B6e4f"))).is_ok());
        for colour in [
            "",
            "red",
            "#fff",
            "#0b6e4g",
            "#0b6e4f;",
            "#0b6e4f} body { display: none",
            "url(x)",
            "#+b6e4f",
            "#0b6e4\u{e9}",
        ] {
            let bad = check(&options(None, Some(colour))).unwrap_err();
            assert_eq!(bad.setting, "colour", "{colour}");
        }
    }

    #[test]
    fn text_on_the_colour_is_black_or_white_whichever_contrasts_more() {
        for (colour, ink) in [
            ("#000000", "color: #ffffff"),
            ("#0b6e4f", "color: #ffffff"),
            ("#ffffff", "color: #000000"),
            ("#ffd400", "color: #000000"),
        ] {
            let brand = Brand::read(&options(None, Some(colour))).unwrap();
            let style = brand.style.unwrap();
            let text = String::from_utf8(style.content.to_vec()).unwrap();
            assert!(text.contains(ink) && text.contains(colour), "{text}");
        }
    }

    #[test]
    fn a_logo_is_a_url_with_tls_or_a_small_image() {
        let brand = Brand::read(&options(Some("https://a.example/l.svg"), None)).unwrap();
        assert_eq!(brand.logo(), Some("https://a.example/l.svg"));
        assert_eq!(brand.logo_origin(), Some("https://a.example"));
        for logo in [
            "http://a.example/l.svg",
            "javascript:alert(1)",
            "data:image/svg+xml,x",
            "//a.example/l.svg",
            "/etc/passwd",
            "/no/such/logo.png",
            "/dev/zero",
        ] {
            let bad = Brand::read(&options(Some(logo), None)).err().unwrap();
            assert_eq!(bad.setting, "logo", "{logo}");
        }
    }

    #[test]
    fn a_name_is_short_and_on_one_line() {
        let named = |name: &str| {
            check(&PortalOptions {
                name: Some(name.to_owned()),
                ..PortalOptions::default()
            })
        };
        assert!(named("<Shop> & Co").is_ok());
        for name in ["", "a\nb", &"a".repeat(PORTAL_NAME_BYTES_MAX + 1)] {
            assert!(named(name).is_err(), "{name:?}");
        }
    }
}
