//! The previous secrets of an endpoint, which sign beside the current one until they end.
//!
//! Each has its own end, which is part of the name under which it is encrypted. A rotation adds
//! one and shortens none, so that a customer who never got the secret of a rotation can verify with
//! the one that they have. One too many is refused.

use hapax::{Timestamp, admin::AdminError, limits::ENDPOINT_PREVIOUS_SECRETS};
use secrecy::SecretString;

use super::Secrets;

/// The name of a previous secret that ends at the time in the row: a row has one that was written before
/// there were several.
const SINGLE: &str = "previous_secret";
/// The beginning of the names of previous secrets. The end in milliseconds and a number follow.
const PREFIX: &str = "previous_secret.";

/// The previous secrets of an endpoint, in the order of their ends.
#[derive(Debug, Default)]
pub(super) struct PreviousSecrets(Vec<(Timestamp, SecretString)>);

impl PreviousSecrets {
    /// Reads the previous secrets among those of an endpoint. `row_until` is the end in its row.
    pub(super) fn read(secrets: &Secrets, row_until: Option<Timestamp>) -> Self {
        let read = |(name, secret): (&String, &SecretString)| {
            let until = end_of(name, row_until)?;
            Some((until, secret.clone()))
        };
        let mut previous: Vec<_> = secrets.iter().filter_map(read).collect();
        previous.sort_by_key(|(until, _)| *until);
        Self(previous)
    }

    /// Leaves out those that do not sign any more.
    pub(super) fn remove_ended(&mut self, now: Timestamp) {
        self.0.retain(|(until, _)| *until > now);
    }

    /// Adds a secret that signs until a time.
    ///
    /// # Errors
    /// `Conflict` if there are [`ENDPOINT_PREVIOUS_SECRETS`] already.
    pub(super) fn add(&mut self, secret: SecretString, until: Timestamp) -> Result<(), AdminError> {
        if self.0.len() >= ENDPOINT_PREVIOUS_SECRETS
            && let Some((first_end, _)) = self.0.first()
        {
            return Err(AdminError::conflict(format!(
                "{ENDPOINT_PREVIOUS_SECRETS} previous secrets of the endpoint still sign, which is \
                 the limit: the first of them ends at {first_end}. Rotate after that, or with an \
                 overlap of 0s, which ends all of them at once"
            )));
        }
        let index = self.0.partition_point(|(other, _)| *other <= until);
        self.0.insert(index, (until, secret));
        Ok(())
    }

    /// When the last of them ends.
    pub(super) fn until(&self) -> Option<Timestamp> {
        self.0.last().map(|(until, _)| *until)
    }

    /// Puts them among the secrets of the endpoint, instead of those that were there.
    pub(super) fn write(self, secrets: &mut Secrets) {
        secrets.retain(|name, _| name != SINGLE && !name.starts_with(PREFIX));
        for (number, (until, secret)) in self.0.into_iter().enumerate() {
            let until = until.as_millis();
            secrets.insert(format!("{PREFIX}{until}.{number}"), secret);
        }
    }
}

impl IntoIterator for PreviousSecrets {
    type Item = (Timestamp, SecretString);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// When the secret of a name ends, if it is a previous one.
fn end_of(name: &str, row_until: Option<Timestamp>) -> Option<Timestamp> {
    if name == SINGLE {
        // Without a time it does not sign any more.
        return row_until;
    }
    let (until, _) = name.strip_prefix(PREFIX)?.split_once('.')?;
    until.parse().ok().map(Timestamp::from_millis)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn each_previous_secret_keeps_its_own_end() {
        let mut previous = PreviousSecrets::default();
        for (secret, until) in [("one", 30), ("two", 10), ("three", 30)] {
            previous.add(secret.into(), at(until)).unwrap();
        }
        assert_eq!(previous.until(), Some(at(30)));
        let current = SecretString::from("now");
        let mut secrets = Secrets::from([("secret".to_owned(), current)]);
        previous.write(&mut secrets);
        let mut read = PreviousSecrets::read(&secrets, Some(at(99)));
        check(&read, &[(10, "two"), (30, "one"), (30, "three")]);
        read.remove_ended(at(10));
        check(&read, &[(30, "one"), (30, "three")]);
        read.write(&mut secrets);
        assert_eq!(secrets.len(), 3);
        assert_eq!(secrets["secret"].expose_secret(), "now");
        PreviousSecrets::default().write(&mut secrets);
        assert_eq!(secrets.len(), 1);
    }

    #[test]
    fn a_secret_that_ends_at_the_time_in_the_row_is_read_and_written_as_one_of_several() {
        let row = [("secret", "now"), ("previous_secret", "old")];
        let row = row.map(|(name, it)| (name.to_owned(), SecretString::from(it)));
        let mut secrets = Secrets::from(row);
        check(&PreviousSecrets::read(&secrets, None), &[]);
        let mut read = PreviousSecrets::read(&secrets, Some(at(20)));
        check(&read, &[(20, "old")]);
        read.add("now".into(), at(40)).unwrap();
        read.write(&mut secrets);
        let read = PreviousSecrets::read(&secrets, Some(at(40)));
        check(&read, &[(20, "old"), (40, "now")]);
    }

    #[test]
    fn one_too_many_is_refused_with_the_first_end() {
        let mut previous = PreviousSecrets::default();
        for number in 1..=4 {
            previous.add("old".into(), at(number * 1_000)).unwrap();
        }
        let refused = previous.add("old".into(), at(9_000)).unwrap_err();
        assert!(matches!(refused, AdminError::Conflict { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("1970-01-01T00:00:01.000Z"), "{text}");
        previous.remove_ended(at(1_000));
        assert!(previous.add("old".into(), at(9_000)).is_ok());
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[track_caller]
    fn check(previous: &PreviousSecrets, expected: &[(i64, &str)]) {
        let shown = |(until, secret): &(Timestamp, SecretString)| {
            (until.as_millis(), secret.expose_secret().to_owned())
        };
        let shown: Vec<_> = previous.0.iter().map(shown).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(until, secret)| (*until, (*secret).to_owned()))
            .collect();
        assert_eq!(shown, expected);
    }
}
