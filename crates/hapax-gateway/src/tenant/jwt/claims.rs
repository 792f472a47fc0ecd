//! Claims of a verified token: its times, its issuer, its audience, and the tenant.
//!
//! A token without `exp` is refused: nothing would end its use. `aud` may be a string or a list of
//! strings; a list has to contain an accepted audience. Times are numbers of seconds, which may
//! have a fraction.

use std::time::Duration;

use hapax::{Timestamp, key::Tenant};
use serde_json::{Map, Value};

use super::refusal::JwtRefusal;

/// The last second of the year 9999. A later time is a mistake of the issuer.
const SECONDS_MAX: f64 = 253_402_300_799.0;
/// Maximum number of names in the path of a claim.
const PATH_PARTS_MAX: usize = 8;

/// The claims that a token must have.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) issuer: Option<String>,
    /// Accepted audiences. Empty: the audience is not checked.
    pub(super) audiences: Vec<String>,
    pub(super) tenant: ClaimPath,
    pub(super) leeway: Duration,
}

/// Where a claim is: the names of members, from the outside in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimPath(Vec<String>);

impl ClaimPath {
    /// Parses a path such as `tenant` or `org.id`. A URL is one name, because names of claims with
    /// a namespace contain full stops.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_url = text.starts_with("https://") || text.starts_with("http://");
        let parts: Vec<String> = if is_url {
            vec![text.to_owned()]
        } else {
            text.split('.').map(str::to_owned).collect()
        };
        let is_valid = parts.len() <= PATH_PARTS_MAX && !parts.iter().any(String::is_empty);
        is_valid.then_some(Self(parts))
    }

    fn find<'a>(&self, claims: &'a Map<String, Value>) -> Option<&'a Value> {
        let (last, outer) = self.0.split_last()?;
        let mut object = claims;
        for name in outer {
            object = object.get(name)?.as_object()?;
        }
        object.get(last)
    }
}

impl Expected {
    /// Checks the claims and returns the tenant.
    pub(super) fn check(
        &self,
        claims: &Map<String, Value>,
        now: Timestamp,
    ) -> Result<Tenant, JwtRefusal> {
        self.check_times(claims, now)?;
        self.check_issuer(claims)?;
        self.check_audience(claims)?;
        let tenant = self.tenant.find(claims).ok_or(JwtRefusal::ClaimMissing)?;
        let tenant = tenant.as_str().ok_or(JwtRefusal::ClaimType)?;
        // The text is written to logs and to a column of the database.
        if tenant.chars().any(char::is_control) {
            return Err(JwtRefusal::Tenant);
        }
        Tenant::new(tenant).map_err(|_| JwtRefusal::Tenant)
    }

    fn check_times(&self, claims: &Map<String, Value>, now: Timestamp) -> Result<(), JwtRefusal> {
        let expires = time(claims, "exp")?.ok_or(JwtRefusal::Time)?;
        if now >= expires.after(self.leeway) {
            return Err(JwtRefusal::Expired);
        }
        let latest = now.after(self.leeway);
        if time(claims, "nbf")?.is_some_and(|from| from > latest) {
            return Err(JwtRefusal::NotYetValid);
        }
        if time(claims, "iat")?.is_some_and(|issued| issued > latest) {
            return Err(JwtRefusal::IssuedInFuture);
        }
        Ok(())
    }

    fn check_issuer(&self, claims: &Map<String, Value>) -> Result<(), JwtRefusal> {
        match &self.issuer {
            Some(issuer) if claims.get("iss").and_then(Value::as_str) != Some(issuer.as_str()) => {
                Err(JwtRefusal::Issuer)
            }
            _ => Ok(()),
        }
    }

    fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), JwtRefusal> {
        let is_accepted = |name: &Value| {
            let name = name.as_str();
            self.audiences
                .iter()
                .any(|ours| name == Some(ours.as_str()))
        };
        let is_meant = match claims.get("aud") {
            _ if self.audiences.is_empty() => true,
            Some(Value::Array(names)) => {
                names.iter().all(Value::is_string) && names.iter().any(is_accepted)
            }
            Some(name) => is_accepted(name),
            None => false,
        };
        is_meant.then_some(()).ok_or(JwtRefusal::Audience)
    }
}

fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, JwtRefusal> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let seconds = value.as_f64().ok_or(JwtRefusal::Time)?;
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(JwtRefusal::Time);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    let millis = (seconds * 1000.0).round() as i64;
    Ok(Some(Timestamp::from_millis(millis)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn a_path_has_names_and_a_url_is_one_name() {
        let parts = |text: &str| ClaimPath::parse(text).map(|path| path.0);
        assert_eq!(parts("org.id").unwrap(), ["org", "id"]);
        assert_eq!(
            parts("https://a.example/t").unwrap(),
            ["https://a.example/t"]
        );
        for text in ["", ".", "a.", ".a", "a..b", "a.b.c.d.e.f.g.h.i"] {
            assert_eq!(parts(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_leeway_applies_to_both_ends_and_not_a_millisecond_more() {
        let at = |name: &str, seconds: f64| check(json!({name: seconds, "tenant": "a"}));
        let both = |name: &str, seconds: f64| {
            check(json!({name: seconds, "tenant": "a", "exp": NOW + 600}))
        };
        let now = 1_800_000_000.0;
        assert_eq!(at("exp", now - 60.0), Err(JwtRefusal::Expired));
        assert_eq!(at("exp", now - 59.999).unwrap().as_str(), "a");
        assert!(both("nbf", now + 60.0).is_ok() && both("iat", now + 60.0).is_ok());
        assert_eq!(both("nbf", now + 60.001), Err(JwtRefusal::NotYetValid));
        assert_eq!(both("iat", now + 60.001), Err(JwtRefusal::IssuedInFuture));
    }

    #[test]
    fn a_time_that_is_not_a_number_of_seconds_is_refused() {
        for value in [
            json!("1"),
            json!(null),
            json!(-1),
            json!(1e300),
            json!([]),
            json!(true),
        ] {
            let claims = json!({"exp": value, "tenant": "a"});
            assert_eq!(check(claims), Err(JwtRefusal::Time), "{value}");
            let claims = json!({"exp": NOW + 1, "nbf": value, "tenant": "a"});
            assert_eq!(check(claims), Err(JwtRefusal::Time), "{value}");
        }
    }

    fn check(claims: Value) -> Result<Tenant, JwtRefusal> {
        let expected = Expected {
            issuer: None,
            audiences: Vec::new(),
            tenant: ClaimPath::parse("tenant").unwrap(),
            leeway: Duration::from_mins(1),
        };
        let Value::Object(claims) = claims else {
            panic!("claims are an object");
        };
        expected.check(&claims, Timestamp::from_millis(NOW * 1000))
    }
}
