//! Decision about an unknown outcome: the form, and its execution.
//!
//! If the request happened, the form asks for the response that every retry receives. The form
//! contains the version of the gateway's record that the operator has seen. A form that is sent
//! twice decides once.

use axum::body::Bytes;
use hapax::{
    admin::{
        Actor, Admin, KeyDecision, KeyOutcome, decide_unknown, given_response, unknown_outcome,
    },
    idempotency::StoredResponse,
};

use super::{Plan, looked_at, plan::field};
use crate::{
    fields::Fields,
    html::{Html, el},
    pages::{ErrorPage, unknown},
};

/// A decision about one unknown outcome.
pub(super) struct UnknownAct {
    tenant: Option<String>,
    operation: String,
    key: String,
    happened: bool,
    /// The version of the outcome that the operator has seen.
    version: Option<String>,
}

impl UnknownAct {
    pub(super) fn read(fields: &Fields) -> Result<Self, ErrorPage> {
        let text = |name| {
            let missing = || ErrorPage::wrong(format!("The field {name} is missing."));
            fields.get(name).map(str::to_owned).ok_or_else(missing)
        };
        let happened = match text("decision")?.as_str() {
            "happened" => true,
            "did_not_happen" => false,
            other => return Err(ErrorPage::wrong(format!("Unknown decision {other:?}."))),
        };
        Ok(Self {
            tenant: fields.get("tenant").map(str::to_owned),
            operation: text("operation")?,
            key: text("key")?,
            happened,
            version: fields.get("version").map(str::to_owned),
        })
    }

    /// The effect of the decision, if the request was not sent again since its page was opened.
    pub(super) async fn plan(&self, store: &dyn Admin, actor: &Actor) -> Result<Plan, ErrorPage> {
        let tenant = self.tenant.as_deref();
        let found = unknown_outcome(store, actor, tenant, &self.operation, &self.key);
        let (it, _) = found.await?;
        if self
            .version
            .as_ref()
            .is_some_and(|seen| *seen != it.version)
        {
            let why = "the request was sent again since its page was opened: load the page again";
            return Err(ErrorPage::late(&why));
        }
        if !it.is_waiting {
            return Err(ErrorPage::late(&"a gateway still waits for the response"));
        }
        let (operation, key) = (&it.key.operation, &it.key.key);
        let (title, says, does) = if self.happened {
            let says = format!(
                "The request with the key {key} of {operation} has happened. The response below is \
                 stored, and every retry receives it. It cannot be changed later."
            );
            ("The request happened", says, "Store this response")
        } else {
            let says = format!(
                "The request with the key {key} of {operation} has not happened, and the service \
                 will not execute it any more. The key becomes free, and the next retry is sent. \
                 If the request did happen, that retry has its effect a second time."
            );
            ("The request did not happen", says, "Free the key")
        };
        let mut plan = Plan::new(title, says, does, unknown::path_of(&it));
        if self.happened {
            let status = it.record.response_status.filter(|it| *it < 500);
            plan.more = response_fields(status.unwrap_or(200));
            plan.is_short = false;
        }
        Ok(plan.looked_at("version", &it.version))
    }

    /// Executes the decision.
    pub(super) async fn run(
        &self,
        store: &dyn Admin,
        actor: &Actor,
        fields: &Fields,
        reason: &str,
    ) -> Result<(String, &'static str), ErrorPage> {
        let outcome = if self.happened {
            KeyOutcome::Happened(response(fields)?)
        } else {
            KeyOutcome::DidNotHappen
        };
        let decision = KeyDecision {
            tenant: self.tenant.clone(),
            operation: self.operation.clone(),
            key: self.key.clone(),
            version: looked_at(self.version.clone(), "version")?,
            outcome,
            reason: reason.to_owned(),
        };
        decide_unknown(store, actor, &decision).await?;
        Ok((unknown::LIST.to_owned(), "settled"))
    }
}

/// The fields of a response.
fn response_fields(status: u16) -> Html {
    let area = |name: &'static str, rows: &str, value: &str| {
        el("textarea")
            .attr("id", name)
            .attr("name", name)
            .attr("rows", rows)
            .attr("spellcheck", "false")
            .attr("autocomplete", "off")
            .add(value)
    };
    let label = |name: &str, text: &str| el("label").attr("for", name).add(text);
    Html::default()
        .add(field("status", "Status", &status.to_string()))
        .add(label("headers", "Headers, one in a line"))
        .add(area("headers", "3", "content-type: application/json"))
        .add(label(
            "body",
            "Body, of up to 60 KiB; give longer ones, and those with other line breaks, with hapax \
             gateway unknown decide",
        ))
        .add(area("body", "8", ""))
}

/// The response of a form, parsed.
fn response(fields: &Fields) -> Result<StoredResponse, ErrorPage> {
    let status = fields.text("status").trim().parse::<u16>();
    let status = status.map_err(|_| {
        ErrorPage::wrong("The status is not a number such as 201. Nothing was done.")
    })?;
    let lines = fields.text("headers").lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty());
    let header = |line: &str| -> Result<(String, String), ErrorPage> {
        let pair = line.split_once(':');
        let (name, value) = pair.ok_or_else(|| {
            let why = format!("The header {line:?} has no colon. Nothing was done.");
            ErrorPage::wrong(why)
        })?;
        Ok((name.to_owned(), value.to_owned()))
    };
    let headers: Vec<(String, String)> = lines.map(header).collect::<Result<_, _>>()?;
    // A browser sends every line break as two characters.
    let body = fields.text("body").replace("\r\n", "\n");
    let headers = headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
    Ok(given_response(status, headers, Bytes::from(body))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_read_from_its_form() {
        let headers = "Content-Type%3A+text%2Fplain%0D%0A%0D%0AX-A%3Ab";
        let form = format!("status=201&headers={headers}&body=a%0D%0Ab");
        let read = response(&Fields::parse(form.as_bytes())).unwrap();
        assert_eq!(read.status, 201);
        let names: Vec<&str> = read.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["content-type", "x-a"]);
        assert_eq!(read.body, "a\nb");
        for form in [
            "status=",
            "status=x",
            "status=200&headers=none",
            "status=200&headers=content-length%3A7",
        ] {
            assert!(response(&Fields::parse(form.as_bytes())).is_err(), "{form}");
        }
    }
}
