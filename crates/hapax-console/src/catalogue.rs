//! Public page of an event catalogue: what each event means, its schema and examples.
//!
//! The page is for the receivers of events. It needs no token and contains nothing but the catalogue:
//! types whose flags are not enabled are left out. It is one document without a script, whose style is
//! inside, so that it can also be written to a file.

use std::collections::BTreeSet;

use axum::{
    Router,
    body::Bytes,
    response::{IntoResponse as _, Response},
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax::catalogue::{Catalogue, EventType, Version};
use http::{HeaderValue, header};
use serde_json::Value;

use crate::{
    auth::hash,
    format::none,
    html::{Element, Html, el, link},
    markdown,
};

/// The path of the page.
pub const PATH: &str = "/catalogue";
/// The path of the catalogue as OpenAPI.
pub const OPEN_API: &str = "/catalogue/openapi.json";
/// The path of the catalogue as AsyncAPI.
pub const ASYNC_API: &str = "/catalogue/asyncapi.json";

const STYLE: &str = include_str!("../assets/console.css");

/// The routes of the page and of the two descriptions, for the types that are visible with `flags`.
pub fn router(catalogue: &Catalogue, flags: &BTreeSet<String>) -> Router {
    const JSON: &str = "application/json";
    let links = [(OPEN_API, "OpenAPI 3.1"), (ASYNC_API, "AsyncAPI 3.0")];
    let html = render(catalogue, flags, &links);
    let open_api = catalogue.open_api(flags).to_string();
    let async_api = catalogue.async_api(flags).to_string();
    let policy = policy();
    [
        (PATH, "text/html; charset=utf-8", html),
        (OPEN_API, JSON, open_api),
        (ASYNC_API, JSON, async_api),
    ]
    .into_iter()
    .fold(Router::new(), |router, (path, kind, text)| {
        let (text, policy) = (Bytes::from(text), policy.clone());
        let answer = move || {
            let response = respond(kind, text.clone(), policy.clone());
            async move { response }
        };
        router.route(path, get(answer))
    })
}

/// The page as a document for a file, without links to the descriptions.
pub fn page(catalogue: &Catalogue, flags: &BTreeSet<String>) -> String {
    render(catalogue, flags, &[])
}

/// Only the style of the page, which is named by its hash.
fn policy() -> HeaderValue {
    let style = STANDARD.encode(hash(STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).expect("base64 makes a header")
}

fn respond(kind: &'static str, text: Bytes, policy: HeaderValue) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_SECURITY_POLICY, policy),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, text).into_response()
}

fn render(catalogue: &Catalogue, flags: &BTreeSet<String>, links: &[(&str, &str)]) -> String {
    let title = format!("{} – events", catalogue.title());
    let meta = |name: &str, content: &str| el("meta").attr("name", name).attr("content", content);
    let head = el("head")
        .add(el("meta").attr("charset", "utf-8"))
        .add(meta("viewport", "width=device-width, initial-scale=1"))
        .add(meta("color-scheme", "light dark"))
        .add(el("title").add(title));
    let main = el("main")
        .attr("id", "main")
        .attr("tabindex", "-1")
        .add(el("h1").add(catalogue.title()))
        .add(listing(catalogue, flags));
    let header = el("header")
        .add(el("span").class("name").add(catalogue.title()))
        .add(el("span").class("grow"))
        .all(links.iter().map(|(to, name)| link(to, *name)));
    let body = el("body")
        .add(link("#main", "Skip to the content").class("skip"))
        .add(header)
        .add(main);
    let html = el("html").attr("lang", "en").add(head).add(body);
    let style = format!("<style>{STYLE}</style></head>");
    Html::default()
        .add(html)
        .into_string()
        .replacen("<html", "<!doctype html><html", 1)
        .replacen("</head>", &style, 1)
}

/// The content of the page: the types that are visible with `flags`.
pub(crate) fn listing(catalogue: &Catalogue, flags: &BTreeSet<String>) -> Html {
    let visible = catalogue.visible(flags);
    let version = format!("Version {}", catalogue.version());
    let sections = visible.iter().map(|event| section(catalogue, event));
    Html::default()
        .add(el("p").class("soft").add(version))
        .add(catalogue.description().map(prose))
        .add(contents(&visible))
        .add(Html::all(sections))
}

/// A description, whose links lead only to pages with TLS.
pub(crate) fn prose(text: &str) -> Element {
    let leads_to = |target: &str| target.starts_with("https://").then(|| target.to_owned());
    el("div")
        .class("prose")
        .add(markdown::excerpt(text, &[], &leads_to))
}

fn contents(visible: &[&EventType]) -> Element {
    let item = |event: &&EventType| {
        let name = el("code").add(&event.kind);
        el("li")
            .add(link(&format!("#{}", event.kind), name))
            .add(marks(event))
    };
    let list = el("ul").class("links").all(visible.iter().map(item));
    el("nav")
        .attr("aria-label", "Event types")
        .add(if visible.is_empty() {
            el("p").class("nothing").add("There are no event types.")
        } else {
            list
        })
}

/// The marks of a type: that it is deprecated, and its flags.
pub(crate) fn marks(event: &EventType) -> Html {
    let deprecated = event.deprecated.then(deprecated);
    let flag = |name: &String| {
        let badge = el("span").class("badge plain").add(name);
        Html::default().add(" ").add(badge)
    };
    Html::default()
        .add(deprecated)
        .add(Html::all(event.flags.iter().map(flag)))
}

fn deprecated() -> Html {
    let badge = el("span").class("badge slow").add("deprecated");
    Html::default().add(" ").add(badge)
}

fn section(catalogue: &Catalogue, event: &EventType) -> Element {
    let heading = el("h2")
        .attr("id", &event.kind)
        .add(el("code").add(&event.kind))
        .add(marks(event));
    let versions = event.versions.iter().rev();
    el("section")
        .attr("aria-labelledby", &event.kind)
        .add(heading)
        .add(prose(&event.description))
        .all(versions.map(|version| described(catalogue, event, version)))
}

/// A version of a type: the members of its payload, its examples and its schema.
pub(crate) fn described(catalogue: &Catalogue, event: &EventType, version: &Version) -> Html {
    let name = format!("{}, version {}", event.kind, version.number);
    let heading = el("h3")
        .add(format!("Version {}", version.number))
        .add(version.deprecated.then(deprecated));
    let schema = el("details")
        .add(el("summary").add("JSON Schema"))
        .add(json(
            &format!("Schema of {name}"),
            &catalogue.schema(version),
        ));
    let examples = version.examples.iter();
    Html::default()
        .add(heading)
        .add(members(&name, &version.schema))
        .add(Html::all(
            examples.map(|example| json(&format!("Example of {name}"), example)),
        ))
        .add(schema)
}

/// The members of a payload that is an object, as a table.
fn members(name: &str, schema: &Value) -> Option<Element> {
    let properties = schema.get("properties")?.as_object()?;
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &String| required.is_some_and(|all| all.iter().any(|it| it == name));
    let row = |(name, schema): (&String, &Value)| {
        let presence = if is_required(name) {
            "required"
        } else {
            "optional"
        };
        let description = schema.get("description").and_then(Value::as_str);
        let meaning = description.map_or_else(none, |text| Html::default().add(text));
        let cell = |head: &str, what: Html| {
            let value = el("div").class("v").add(what);
            el("td").attr("data-head", head).add(value)
        };
        el("tr")
            .add(cell("Member", Html::default().add(el("code").add(name))))
            .add(cell("Type", Html::default().add(type_name(schema))))
            .add(cell("Presence", Html::default().add(presence)))
            .add(cell("Meaning", meaning))
    };
    let heads = ["Member", "Type", "Presence", "Meaning"];
    let heads = heads.map(|head| el("th").attr("scope", "col").add(head));
    let caption = el("caption")
        .class("unseen")
        .add(format!("Members of {name}"));
    let table = el("table")
        .add(caption)
        .add(el("thead").add(el("tr").all(heads)))
        .add(el("tbody").all(properties.iter().map(row)));
    (!properties.is_empty()).then_some(table)
}

/// The type of a value, as its schema describes it.
fn type_name(schema: &Value) -> String {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return reference.rsplit('/').next().unwrap_or(reference).to_owned();
    }
    match (schema.get("type"), schema.get("format")) {
        (Some(Value::String(one)), Some(Value::String(format))) => format!("{one} ({format})"),
        (Some(Value::String(one)), _) => one.clone(),
        (Some(Value::Array(all)), _) => {
            let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
            all.join(" or ")
        }
        _ => "see the schema".to_owned(),
    }
}

fn json(label: &str, value: &Value) -> Element {
    el("pre")
        .attr("tabindex", "0")
        .attr("role", "region")
        .attr("aria-label", label)
        .add(el("code").add(format!("{value:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CATALOGUE: &str = r##"{
        "title": "<Shop>",
        "version": "1.0.0",
        "description": "See [the contract](https://example.com/a) and [x](javascript:a).",
        "$defs": {"money": {"type": "integer"}},
        "events": [
            {
                "type": "order.created",
                "description": "An order, <b>new</b>.",
                "deprecated": true,
                "versions": [{
                    "version": 1,
                    "schema": {
                        "type": "object",
                        "required": ["id"],
                        "properties": {
                            "id": {"type": "string", "format": "uuid", "description": "The id."},
                            "total": {"$ref": "#/$defs/money"}
                        }
                    },
                    "examples": [{"id": "0190c2f4-3f6e-7aaa-8000-000000000001"}]
                }]
            },
            {
                "type": "order.scored",
                "description": "A score.",
                "flags": ["beta"],
                "versions": [{"version": 1, "schema": true}]
            }
        ]
    }"##;

    fn html(flags: &[&str]) -> String {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        page(&Catalogue::parse(CATALOGUE).unwrap(), &flags)
    }

    #[test]
    fn a_page_shows_types_members_schemas_and_examples() {
        let html = html(&[]);
        for part in [
            "<!doctype html><html lang=\"en\">",
            "<h1>&lt;Shop&gt;</h1>",
            "<a href=\"https://example.com/a\">the contract</a> and x.",
            "An order, &lt;b&gt;new&lt;/b&gt;.",
            "<h2 id=\"order.created\"><code>order.created</code> \
             <span class=\"badge slow\">deprecated</span></h2>",
            "<td data-head=\"Type\"><div class=\"v\">string (uuid)</div></td>",
            "<td data-head=\"Type\"><div class=\"v\">money</div></td>",
            "<td data-head=\"Presence\"><div class=\"v\">required</div></td>",
            "aria-label=\"Example of order.created, version 1\"",
            "&quot;money&quot;: {",
        ] {
            assert!(html.contains(part), "{part}\n{html}");
        }
        assert!(
            !html.contains("<script") && !html.contains(" style="),
            "{html}"
        );
        assert!(
            !html.contains("scored") && !html.contains("/catalogue/"),
            "{html}"
        );
    }

    #[test]
    fn a_type_with_a_flag_is_shown_where_the_flag_is_enabled() {
        let html = html(&["beta"]);
        assert!(html.contains("id=\"order.scored\""), "{html}");
        assert!(
            html.contains("<span class=\"badge plain\">beta</span>"),
            "{html}"
        );
    }

    #[test]
    fn the_policy_names_the_style_of_the_page() {
        let html = html(&[]);
        let (_, rest) = html.split_once("<style>").unwrap();
        let (style, _) = rest.split_once("</style>").unwrap();
        let expected = format!("'sha256-{}'", STANDARD.encode(hash(style.as_bytes())));
        assert!(policy().to_str().unwrap().contains(&expected));
    }
}
