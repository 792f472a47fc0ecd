//! Suggestion of the known name that is nearest to a mistyped one, for filters and settings.

use strsim::levenshtein;

/// The name in `known` that is nearest to `word`; none if more than two thirds of the letters of
/// every name differ.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A prefix of a known name, or a known name with a suffix, counts as near.
    let weigh = |candidate: &'a str| {
        let changes = levenshtein(word, candidate);
        let begins =
            !word.is_empty() && (candidate.starts_with(word) || word.starts_with(candidate));
        (if begins { 0 } else { changes }, changes, candidate)
    };
    // A typing error changes two letters, and in a long word every third one.
    let alike = known.map(weigh).filter(|(weight, _, candidate)| {
        let length = word.chars().count().max(candidate.chars().count());
        3 * weight <= 2 * length && *weight <= 2_usize.max(length / 3)
    });
    alike.min().map(|(_, _, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_finds_the_one_it_meant() {
        let near = |word| nearest(word, ["type", "tenant", "state", "dest"].into_iter());
        assert_eq!(near("stat"), Some("state"));
        assert_eq!(near("destination"), Some("dest"));
        assert_eq!(near("typ"), Some("type"));
        assert_eq!(near("qqq"), None);
        let known = ["listen", "webhook.urls", "webhook.secret", "data_dir"];
        let near = |word| nearest(word, known.into_iter());
        assert_eq!(near("webhook.secrt"), Some("webhook.secret"));
        assert_eq!(near("webhok.urls"), Some("webhook.urls"));
        assert_eq!(near("listne"), Some("listen"));
        assert_eq!(nearest("qqq", ["idempotency.quota_keys"].into_iter()), None);
        assert_eq!(nearest("mapping", ["endpoint", "format"].into_iter()), None);
    }
}
