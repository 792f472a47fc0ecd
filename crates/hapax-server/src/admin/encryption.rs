//! The keys of the configuration, which encrypt stored secrets.

use hapax::keyring::Keyring;
use hapax_sinks::endpoints::Keys;

use crate::config::{Config, Secret, Wrong};

/// The keys of the configuration.
pub(crate) fn keys_of(config: &Config) -> Result<Keys, Wrong> {
    let section = &config.secrets;
    if section.key.is_none() && !section.previous.is_empty() {
        let problem = "is missing, although secrets.previous is set";
        return Err(Wrong::at("secrets.key", problem));
    }
    let secrets: Vec<_> = section.key.iter().chain(&section.previous).collect();
    parse(&secrets)
}

fn parse(secrets: &[&Secret]) -> Result<Keys, Wrong> {
    let path = |place: usize| match place.checked_sub(1) {
        None => "secrets.key".to_owned(),
        Some(number) => format!("secrets.previous[{number}]"),
    };
    let texts = secrets.iter().enumerate().map(|(place, secret)| {
        let text = secret.reveal();
        text.map_err(|bad| Wrong::at(path(place), bad))
    });
    let texts: Vec<_> = texts.collect::<Result<_, _>>()?;
    let keyring = Keyring::parse(texts.iter().map(secrecy::ExposeSecret::expose_secret));
    let keyring = keyring.map_err(|bad| Wrong::at(path(bad.place), bad.to_string()))?;
    Ok(Keys::new(keyring))
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;

    #[test]
    fn a_key_is_32_bytes_and_its_error_says_where_it_stands_and_not_what() {
        let good = Secret::from(STANDARD.encode([1; 32]));
        for bad in ["hunter2", "", "aGVsbG8="] {
            let wrong = parse(&[&good, &Secret::from(bad)]).unwrap_err();
            assert_eq!(wrong.path(), "secrets.previous[0]");
            assert!(bad.is_empty() || !wrong.to_string().contains(bad));
        }
    }
}
