//! Masks the secrets of an operation in what a report says.
//!
//! A server can repeat a request in its response, with the credential in it. The words of a secret are
//! masked too, because a server may repeat `TOKEN` of `Bearer TOKEN`, and so is the beginning of one
//! where a response is shortened.

/// What is printed in place of a secret.
const MASKED: &str = "***";
/// The minimum length of a secret. A shorter text would be found in messages where it means another
/// thing.
const SECRET_MIN: usize = 4;
/// The minimum length of a word of a secret. `Bearer` and `Basic` are shorter.
const WORD_MIN: usize = 8;

/// The texts to mask, the longest first.
#[derive(Debug)]
pub(crate) struct Mask(Vec<String>);

impl Mask {
    pub(crate) fn new(secrets: &[String]) -> Self {
        let words = secrets
            .iter()
            .flat_map(|it| it.split([' ', ',', ';', '=']))
            .filter(|it| it.len() >= WORD_MIN);
        let whole = secrets.iter().map(String::as_str);
        let mut masked: Vec<String> = whole
            .filter(|it| it.len() >= SECRET_MIN)
            .chain(words)
            .map(str::to_owned)
            .collect();
        masked.sort_by_key(|it| std::cmp::Reverse(it.len()));
        Self(masked)
    }

    pub(crate) fn apply(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| {
            let text = text.replace(secret, MASKED);
            if !text.contains("...") {
                return text;
            }
            let ends = (SECRET_MIN..secret.len()).rev();
            ends.filter_map(|end| secret.get(..end))
                .fold(text, |text, start| {
                    text.replace(&format!("{start}..."), &format!("{MASKED}..."))
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(secret: &str, text: &str) -> String {
        Mask::new(&[secret.to_owned()]).apply(text.to_owned())
    }

    #[test]
    fn a_secret_and_its_words_are_masked() {
        let secret = "Bearer TOPSECRET";
        assert_eq!(
            masked(secret, "got 200 {\"Authorization\":\"Bearer TOPSECRET\"}"),
            "got 200 {\"Authorization\":\"***\"}"
        );
        assert_eq!(masked(secret, "token TOPSECRET"), "token ***");
        assert_eq!(masked(secret, "Bearer is missing"), "Bearer is missing");
        assert_eq!(masked("sid=abcdefgh; a=1", "abcdefgh a=1"), "*** a=1");
    }

    #[test]
    fn the_beginning_of_a_secret_is_masked_where_a_text_is_shortened() {
        let secret = "Bearer TOPSECRET";
        assert_eq!(masked(secret, "200 Bearer TOPS...; x"), "200 ***...; x");
        assert_eq!(masked(secret, "200 TOPS..."), "200 ***...");
    }

    #[test]
    fn a_text_that_is_too_short_for_a_secret_is_kept() {
        assert_eq!(masked("2", "2 effects"), "2 effects");
    }
}
