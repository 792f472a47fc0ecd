//! Layout of the portal's pages: the brand, the navigation, and the signed-in tenant.

use std::sync::LazyLock;

use super::{BASE, FOLDER, Portal, guard::PortalRequest};
use crate::{
    assets::{ICON, SCRIPT, STYLE},
    html::{Element, Html, el, link},
    layout::{Files, Page, document},
};

static STYLE_PATH: LazyLock<String> = LazyLock::new(|| STYLE.path_in(FOLDER));
static SCRIPT_PATH: LazyLock<String> = LazyLock::new(|| SCRIPT.path_in(FOLDER));
static ICON_PATH: LazyLock<String> = LazyLock::new(|| ICON.path_in(FOLDER));

/// The pages of the navigation: the key after `g` that opens it, the path, and the title.
const PLACES: [(&str, &str, &str); 3] = [
    ("e", BASE, "Endpoints"),
    ("n", "/portal/endpoints/new", "Add endpoint"),
    ("t", "/portal/event-types", "Event types"),
];

/// Renders the document of a page.
pub(super) fn render(portal: &Portal, page_request: &PortalRequest, page: Page) -> String {
    let Page { title, body, .. } = page;
    let brand = &portal.0.brand;
    let main = el("main")
        .attr("id", "main")
        .attr("tabindex", "-1")
        .add(el("h1").add(&title))
        .add(notice(page_request))
        .add(el("div").attr("id", "results").add(body));
    let has_session = page_request.session().is_some();
    let inside = el("body")
        .add(link("#main", "Skip to the content").class("skip"))
        .add(header(portal, page_request))
        .add(has_session.then(|| navigation(page_request)))
        .add(main);
    let mut styles = vec![STYLE_PATH.as_str()];
    styles.extend(brand.style());
    let files = Files {
        icon: &ICON_PATH,
        styles: &styles,
        script: &SCRIPT_PATH,
    };
    document(&format!("{title} – {}", brand.name), &files, inside)
}

fn header(portal: &Portal, page_request: &PortalRequest) -> Element {
    let brand = &portal.0.brand;
    // The name beside it says what it is.
    let logo = |path| el("img").class("logo").attr("src", path).attr("alt", "");
    let theme = el("button")
        .attr("type", "button")
        .attr("id", "theme")
        .flag("hidden", true)
        .add("Dark");
    el("header")
        .add(brand.logo().map(logo))
        .add(link(BASE, &brand.name).class("name"))
        .add(el("span").class("grow"))
        .add(theme)
        .add(page_request.session().map(|claims| {
            let rights = (!claims.may_write()).then_some(" read only");
            let name = claims.name.as_ref().map(|name| format!(" {name}"));
            el("span")
                .class("who")
                .add(claims.tenant.as_str())
                .add(el("span").class("soft").add(name).add(rights))
        }))
}

fn navigation(page_request: &PortalRequest) -> Element {
    let may_write = page_request.may_write();
    let places = PLACES.into_iter();
    let places = places.filter(|(_, path, _)| may_write || !path.ends_with("/new"));
    let items = places.map(|(key, path, name)| {
        let anchor = link(path, name).attr("data-key", key);
        let anchor = if is_at(&page_request.path, path) {
            anchor.attr("aria-current", "page")
        } else {
            anchor
        };
        let hint = el("kbd")
            .attr("aria-hidden", "true")
            .add(format!("g {key}"));
        el("li").add(anchor.add(hint))
    });
    el("nav")
        .attr("aria-label", "Pages")
        .add(el("ul").all(items))
}

/// Whether the page at `here` belongs to the entry with this path.
fn is_at(here: &str, path: &str) -> bool {
    let is_below =
        here.starts_with("/portal/endpoints/") || here.starts_with("/portal/deliveries/");
    let is_named = PLACES.iter().any(|(_, known, _)| *known == here);
    here == path || (path == BASE && is_below && !is_named)
}

/// The result of the action that led to this page. The address can name only one of these.
fn notice(page_request: &PortalRequest) -> Option<Element> {
    let fields = &page_request.fields;
    let said = match fields.get("done")? {
        "saved" => "The changes are saved.".to_owned(),
        "enabled" => "The endpoint is enabled.".to_owned(),
        "disabled" => "The endpoint is disabled.".to_owned(),
        "deleted" => "The endpoint is deleted.".to_owned(),
        "replayed" => {
            let count: u64 = fields.text("count").parse().ok()?;
            let deliveries = crate::format::counted(count, "delivery", "deliveries");
            format!("{deliveries} will be sent again.")
        }
        _ => return None,
    };
    Some(el("p").class("told").attr("role", "status").add(said))
}

/// The form field that protects against CSRF.
pub(super) fn sealed(page_request: &PortalRequest) -> Element {
    hidden("seal", &page_request.seal)
}

/// A hidden field.
pub(super) fn hidden(name: &str, value: &str) -> Element {
    el("input")
        .attr("type", "hidden")
        .attr("name", name)
        .attr("value", value)
}

/// A form that posts to a path.
pub(super) fn form(page_request: &PortalRequest, action: &str) -> Element {
    el("form")
        .attr("method", "post")
        .attr("action", action)
        .class("act")
        .add(sealed(page_request))
}

/// A button that sends its form.
pub(super) fn submit(label: &str) -> Element {
    el("button").attr("type", "submit").add(label)
}

/// A part of a page with a heading.
pub(super) fn part(id: &str, title: &str, body: Html) -> Element {
    el("section")
        .attr("aria-labelledby", id)
        .add(el("h2").attr("id", id).add(title))
        .add(body)
}
