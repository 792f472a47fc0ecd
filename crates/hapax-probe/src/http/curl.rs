//! Requests as `curl` commands, with secrets masked.

use crate::http::{Framing, Request};

/// Header fields whose values are secrets.
const SECRET: [&str; 5] = [
    "authorization",
    "cookie",
    "proxy-authorization",
    "x-api-key",
    "x-auth-token",
];

/// Whether the values of a header field are masked in reports.
pub(crate) fn is_secret(name: &str, more: &[String]) -> bool {
    SECRET.iter().any(|it| it.eq_ignore_ascii_case(name))
        || more.iter().any(|it| it.eq_ignore_ascii_case(name))
}

/// Returns a request as a `curl` command. `secret` names further header fields to mask.
pub(crate) fn curl(request: &Request, secret: &[String]) -> String {
    let mut command = format!("curl -i -X {}", request.method);
    for (name, value) in &request.headers {
        let value = if is_secret(name, secret) {
            "***".to_owned()
        } else {
            text(value)
        };
        command.push_str(" -H ");
        command.push_str(&quoted(&format!("{name}: {value}")));
    }
    if let Framing::Chunked(_) = request.framing {
        command.push_str(" -H 'Transfer-Encoding: chunked'");
    }
    if !request.body.is_empty() {
        command.push_str(" --data-binary ");
        command.push_str(&quoted(&text(&request.body)));
    }
    command.push(' ');
    command.push_str(&quoted(&request.target.to_string()));
    command
}

/// Returns bytes as text in which control characters are visible.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|it| it.is_control() && it != '\n') => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Returns a text as one word of a shell command.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_quotes_are_escaped() {
        let target = "http://localhost/orders".parse().expect("a URL");
        let request = Request::new("POST", &target)
            .header("Authorization", "Bearer demo-alice")
            .header("X-Tenant-Token", "t")
            .header("Idempotency-Key", "it's")
            .body("{}");
        let command = curl(&request, &["x-tenant-token".to_owned()]);
        assert_eq!(
            command,
            r"curl -i -X POST -H 'Authorization: ***' -H 'X-Tenant-Token: ***' -H 'Idempotency-Key: it'\''s' --data-binary '{}' 'http://localhost/orders'"
        );
    }
}
