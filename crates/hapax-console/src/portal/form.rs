//! The form of an endpoint: how it is read, how it is shown, and the trial of its filter and its mapping.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hapax::{
    admin::{AdminError, EndpointDraft, EndpointPatch, TenantEndpoint, TryEndpoint, try_endpoint},
    places::Place,
    sink::PayloadMode,
};

use super::{
    Portal, guard::PortalRequest, layout::submit, limits::PORTAL_TRIAL_EVENTS, refusal::sentence,
};
use crate::{
    endpoint_trial,
    fields::Fields,
    html::{Element, Html, el},
    inputs::{FILTER_HINT, MAPPING_HINT, TYPES_HINT, area, labelled},
};

/// The pattern of all types.
const ALL: &str = "*";

/// The fields of an endpoint, as a form has them.
#[derive(Clone, Debug, Default)]
pub(super) struct EndpointForm {
    pub(super) url: String,
    pub(super) description: String,
    /// The types that are checked in the list.
    chosen: BTreeSet<String>,
    /// More patterns, separated by white space.
    patterns: String,
    pub(super) filter: String,
    mapping: String,
    /// The custom headers, one on each line.
    headers: String,
    removes_headers: bool,
    /// The choice of the payload; `None` if the form does not offer it.
    payload: Option<PayloadMode>,
}

impl EndpointForm {
    /// Reads the fields of a form.
    pub(super) fn read(fields: &Fields) -> Self {
        Self {
            url: fields.text("url").trim().to_owned(),
            description: fields.text("description").trim().to_owned(),
            chosen: fields.all("type").map(str::to_owned).collect(),
            patterns: fields.text("types").to_owned(),
            filter: fields.text("filter").trim().to_owned(),
            mapping: fields.text("mapping").trim().to_owned(),
            headers: fields.text("headers").to_owned(),
            removes_headers: fields.text("remove_headers") == "yes",
            payload: fields.get("payload").and_then(PayloadMode::parse),
        }
    }

    /// The form of an endpoint as it is. `known` are the types of the catalogue.
    pub(super) fn of(endpoint: &TenantEndpoint, known: &[String]) -> Self {
        let types = endpoint.types.iter().filter(|it| *it != ALL).cloned();
        let (chosen, patterns): (BTreeSet<_>, Vec<_>) = {
            let (chosen, patterns): (Vec<_>, Vec<_>) = types.partition(|it| known.contains(it));
            (chosen.into_iter().collect(), patterns)
        };
        Self {
            url: endpoint.url.clone(),
            description: endpoint.description.clone(),
            chosen,
            patterns: patterns.join("\n"),
            filter: endpoint.filter.clone().unwrap_or_default(),
            mapping: endpoint.mapping.clone().unwrap_or_default(),
            payload: Some(endpoint.payload),
            ..Self::default()
        }
    }

    /// The patterns of event types; none for all types.
    fn types(&self) -> Vec<String> {
        let more = self.patterns.split_whitespace().map(str::to_owned);
        let all: BTreeSet<String> = self.chosen.iter().cloned().chain(more).collect();
        all.into_iter().collect()
    }

    /// The custom headers; `None` if the form has none.
    fn headers(&self) -> Result<Option<BTreeMap<String, String>>, AdminError> {
        let lines = self.headers.lines().map(str::trim);
        let lines = lines.filter(|it| !it.is_empty());
        let pair = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        let headers: Option<BTreeMap<_, _>> = lines.map(pair).collect();
        let problem = "must have a name and a value on each line, such as x-api-key: 1234";
        let headers = headers.ok_or_else(|| AdminError::invalid("headers", problem))?;
        Ok((!headers.is_empty() || self.removes_headers).then_some(headers))
    }

    /// The endpoint that the form creates.
    pub(super) fn draft(&self, id: Option<String>) -> Result<EndpointDraft, AdminError> {
        Ok(EndpointDraft {
            id,
            url: self.url.clone(),
            description: self.description.clone(),
            types: self.types(),
            filter: Some(self.filter.clone()),
            mapping: Some(self.mapping.clone()),
            headers: self.headers()?.unwrap_or_default(),
            payload: self.payload.unwrap_or_default(),
            ..EndpointDraft::default()
        })
    }

    /// The change that the form makes.
    pub(super) fn patch(&self, version: i64) -> Result<EndpointPatch, AdminError> {
        Ok(EndpointPatch {
            version,
            url: Some(self.url.clone()),
            description: Some(self.description.clone()),
            types: Some(self.types()),
            filter: Some(self.filter.clone()),
            mapping: Some(self.mapping.clone()),
            headers: self.headers()?,
            payload: self.payload,
        })
    }

    /// Tries the types, the filter and the mapping on stored events of the tenant. Nothing is changed.
    pub(super) async fn tried(
        &self,
        portal: &Portal,
        page_request: &PortalRequest,
        place: &Arc<Place>,
    ) -> Result<Element, AdminError> {
        let (types, actor) = (self.types(), page_request.claims().actor());
        let ask = TryEndpoint {
            tenant: page_request.tenant(),
            types: &types,
            filter: Some(&self.filter),
            mapping: Some(&self.mapping),
            mask: &portal.0.mask,
            before: None,
            limit: PORTAL_TRIAL_EVENTS,
            place: Some(place),
        };
        let trial = try_endpoint(portal.store(), &actor, &ask).await?;
        let (has_mapping, now) = (!self.mapping.is_empty(), portal.0.clock.now());
        Ok(endpoint_trial::section(&trial, has_mapping, now))
    }

    /// The fields, with the types of the catalogue. `headers` are the names of the configured ones, and
    /// `offers_thin` says whether the payload can be chosen.
    pub(super) fn fields(&self, known: &[String], headers: &[String], offers_thin: bool) -> Html {
        let url = el("input")
            .attr("id", "field-url")
            .attr("name", "url")
            .attr("type", "url")
            .attr("value", &self.url)
            .attr("placeholder", "https://example.com/webhooks")
            .flag("required", true);
        let description = el("input")
            .attr("id", "field-description")
            .attr("name", "description")
            .attr("value", &self.description);
        Html::default()
            .add(labelled("url", "URL", url))
            .add(labelled("description", "Description", description))
            .add(self.types_fields(known))
            .add(area("filter", "Filter", &self.filter, FILTER_HINT))
            .add(area("mapping", "Mapping", &self.mapping, MAPPING_HINT))
            .add(area(
                "headers",
                "Custom headers",
                &self.headers,
                HEADERS_HINT,
            ))
            .add(configured_headers(headers))
            .add(offers_thin.then(|| self.payload_field()))
    }

    fn payload_field(&self) -> Html {
        let chosen = self.payload.unwrap_or_default();
        let option = |mode: PayloadMode, label: &str| {
            el("option")
                .attr("value", mode.as_str())
                .flag("selected", mode == chosen)
                .add(label)
        };
        let select = el("select")
            .attr("id", "field-payload")
            .attr("name", "payload")
            .attr("aria-describedby", "note-payload")
            .add(option(PayloadMode::Full, "the whole event"))
            .add(option(PayloadMode::Thin, "the id of the event and a link"));
        let note = el("p").class("soft").attr("id", "note-payload");
        labelled("payload", "Requests contain", select).add(note.add(PAYLOAD_HINT))
    }

    fn types_fields(&self, known: &[String]) -> Html {
        let item = |kind: &String| {
            let input = el("input")
                .attr("type", "checkbox")
                .attr("name", "type")
                .attr("value", kind)
                .flag("checked", self.chosen.contains(kind));
            let label = el("label").add(input).add(" ").add(el("code").add(kind));
            el("li").add(label)
        };
        let choices = (!known.is_empty()).then(|| {
            el("fieldset")
                .add(el("legend").add("Event types"))
                .add(el("ul").class("choices").all(known.iter().map(item)))
        });
        let label = if known.is_empty() {
            "Event types"
        } else {
            "Other patterns"
        };
        Html::default()
            .add(choices)
            .add(area("types", label, &self.patterns, TYPES_HINT))
    }
}

const HEADERS_HINT: &str = "Headers of every request, one name: value on each line. Values are not shown \
                            again. On a change, an empty field leaves them as they are.";

const PAYLOAD_HINT: &str = "With a link, your server fetches the content of each event with the token of a \
                            polling endpoint.";

/// The names of the headers that an endpoint has, and the box that removes them.
fn configured_headers(headers: &[String]) -> Option<Element> {
    if headers.is_empty() {
        return None;
    }
    let input = el("input")
        .attr("type", "checkbox")
        .attr("name", "remove_headers")
        .attr("value", "yes");
    let names = format!(" Remove the headers {}", headers.join(", "));
    Some(el("label").add(input).add(names))
}

/// The buttons of the form. The first one is what Enter presses.
pub(super) fn buttons(action: &str, label: &str) -> Element {
    let button =
        |value: &str, label: &str| submit(label).attr("name", "action").attr("value", value);
    el("p")
        .class("acts")
        .add(button(action, label).class("main"))
        .add(button("try", "Try filter and mapping"))
}

/// What is wrong with the fields.
pub(super) fn problem(error: &AdminError) -> Element {
    let why = format!("{} Nothing was saved.", sentence(&error.to_string()));
    el("p").class("problem").attr("role", "alert").add(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> EndpointForm {
        EndpointForm::read(&Fields::parse(text.as_bytes()))
    }

    #[test]
    fn types_are_those_that_are_checked_and_those_that_are_written() {
        let form = form("type=order.created&type=a&types=order.*%0D%0A+a++b&url=+https://a/+");
        assert_eq!(form.types(), ["a", "b", "order.*", "order.created"]);
        assert_eq!(form.url, "https://a/");
        assert!(self::form("url=x").types().is_empty());
    }

    #[test]
    fn a_payload_is_chosen_only_if_the_form_offers_it() {
        let thin = form("payload=thin");
        assert_eq!(thin.draft(None).unwrap().payload, PayloadMode::Thin);
        assert_eq!(thin.patch(1).unwrap().payload, Some(PayloadMode::Thin));
        let none = form("url=x");
        assert_eq!(none.draft(None).unwrap().payload, PayloadMode::Full);
        assert_eq!(none.patch(1).unwrap().payload, None);
        let offered = thin.fields(&[], &[], true).into_string();
        assert!(offered.contains("value=\"thin\" selected"), "{offered}");
        let hidden = thin.fields(&[], &[], false).into_string();
        assert!(!hidden.contains("name=\"payload\""), "{hidden}");
    }

    #[test]
    fn an_empty_mapping_removes_the_one_of_the_endpoint() {
        let mapping = |text: &str| form(text).patch(1).unwrap().mapping;
        assert_eq!(mapping("mapping=+").as_deref(), Some(""));
        assert_eq!(mapping("mapping=%7B%7D").as_deref(), Some("{}"));
    }

    #[test]
    fn headers_are_left_replaced_or_removed() {
        let headers = |text: &str| form(text).headers().unwrap();
        assert_eq!(headers("headers="), None);
        assert_eq!(headers("remove_headers=yes"), Some(BTreeMap::new()));
        let given = headers("headers=x-a%3A+1%0D%0Ax-b%3Ac%3Ad%0D%0A%0D%0A").unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            given,
            BTreeMap::from([pair("x-a", "1"), pair("x-b", "c:d")])
        );
        assert!(form("headers=x-a").headers().is_err());
    }

    #[test]
    fn what_is_shown_is_read_back_and_is_not_markup() {
        let evil = "</textarea><script>x</script>";
        let form = EndpointForm {
            url: "\"><b>".to_owned(),
            patterns: evil.to_owned(),
            filter: evil.to_owned(),
            mapping: evil.to_owned(),
            ..EndpointForm::default()
        };
        let known = ["<i>".to_owned()];
        let html = form.fields(&known, &known, true).into_string();
        assert!(!html.contains("<script") && !html.contains("<b>") && !html.contains("<i>"));
        assert_eq!(html.matches("</textarea>").count(), 4);
    }
}
