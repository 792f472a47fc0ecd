//! Classification of permanent SMTP refusals: about this mail, or about the sender.
//!
//! Many servers report only at the recipient step that they do not know the client or do not accept
//! the sender. The mail is then fine and is sent after the settings are corrected. The enhanced
//! status code (RFC 3463) distinguishes the cases if there is one, the reply code otherwise.

/// A step of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Greeting, login, and sender: our settings or the server's state.
    Ours,
    /// The recipient.
    Recipient,
    /// The `DATA` command.
    Data,
    /// The content.
    Content,
}

/// Whether a permanent refusal is about this mail, so that another attempt would not help.
pub(super) fn is_about_the_mail(step: Step, status: u16, said: &str) -> bool {
    if step == Step::Ours || !(500..=599).contains(&status) {
        return false;
    }
    // An unknown command or a missing login.
    if matches!(status, 500 | 502..=504 | 521 | 530 | 534 | 535 | 538) {
        return false;
    }
    match enhanced(said, "5") {
        Some((subject, detail)) => !is_about_us(step, subject, detail, said),
        None => match step {
            Step::Recipient => status != 554 && !speaks_of_us(said),
            _ => true,
        },
    }
}

/// Whether an enhanced status code is about the sender or the server and not about this mail.
fn is_about_us(step: Step, subject: u16, detail: u16, said: &str) -> bool {
    match (subject, detail) {
        (1, 0) => speaks_of_us(said),
        // The message is too large for the system.
        (3, 4) => false,
        // The sender's address: its syntax, its host, its null MX. The state of the system, the
        // protocol. Security and policy, if about the login or domain of the sender.
        (1, 7 | 8) | (3 | 5, _) | (7, 8..=14 | 20..=27 | 500..) => true,
        // Other security and policy codes are about the mail if they refuse the content.
        (7, _) => step != Step::Content,
        _ => false,
    }
}

/// Whether a transient refusal of a recipient is about this mailbox: it is busy, full or
/// greylisted. Other recipients may be accepted.
pub(super) fn is_of_the_mailbox(status: u16, said: &str) -> bool {
    let lower = said.to_ascii_lowercase();
    let speaks_of = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    match (status, enhanced(said, "4")) {
        (450..=452, _) if speaks_of(&["greylist", "graylist"]) => true,
        (450..=452, Some((2, _))) => true,
        // The sender's address; the system, the network, the protocol, policy.
        (450, Some((1, 7 | 8) | (3..=5 | 7, _))) => false,
        (450, _) => !speaks_of_us(said) && !speaks_of(&["client host", "helo"]),
        _ => false,
    }
}

/// Whether a refusal without an enhanced code is about relaying or about the sender.
fn speaks_of_us(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    ["relay", "sender", "authenticat"]
        .iter()
        .any(|word| said.contains(word))
}

/// The subject and detail of the enhanced status code `class.subject.detail`, at the beginning of
/// the text, or after a `#` as some servers write it.
fn enhanced(said: &str, class: &str) -> Option<(u16, u16)> {
    let start = said.trim_start();
    let marked = said.split_once('#').map(|(_, rest)| rest);
    let mut places = [Some(start), marked].into_iter().flatten();
    places.find_map(|text| code(text, class))
}

fn code(text: &str, expected: &str) -> Option<(u16, u16)> {
    let is_part = |it: char| it.is_ascii_digit() || it == '.';
    let end = text.find(|it| !is_part(it)).unwrap_or(text.len());
    let mut parts = text[..end].split('.');
    // A class that differs from that of the reply is a mistake of the server.
    let class = parts.next()?;
    let (subject, detail) = (parts.next()?, parts.next()?);
    if class != expected || parts.next().is_some() {
        return None;
    }
    Some((subject.parse().ok()?, detail.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enhanced_code_is_read_where_servers_write_it() {
        for (said, expected) in [
            ("5.7.1 Relaying denied", Some((7, 1))),
            (" 5.1.10 null MX", Some((1, 10))),
            ("no such user (#5.1.1)", Some((1, 1))),
            ("5.1.1", Some((1, 1))),
            ("4.7.1 later", None),
            ("5.7.1.2 what", None),
            ("5.7 what", None),
            ("no 5.7.1 here", None),
            ("5..1", None),
            ("5.99999.1", None),
            ("", None),
        ] {
            assert_eq!(enhanced(said, "5"), expected, "{said}");
        }
    }

    #[test]
    fn what_is_said_before_a_recipient_is_named_is_never_about_the_mail() {
        for status in 400..600 {
            assert!(!is_about_the_mail(Step::Ours, status, "5.1.1 no such user"));
        }
    }
}
