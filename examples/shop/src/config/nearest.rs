//! Suggestions for mistyped words, by edit distance.

/// Returns the word in `known` that is closest to `word`, the first one if several are equally
/// close.
///
/// `None` if `word` has no character in common with any of them.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let changes = known.map(|candidate| (distance(word, candidate), candidate));
    let alike = changes.filter(|(changes, candidate)| {
        *changes < word.chars().count().max(candidate.chars().count())
    });
    alike
        .min_by_key(|(changes, _)| *changes)
        .map(|(_, candidate)| candidate)
}

/// Returns the number of characters that must be inserted, deleted or replaced to turn one word
/// into the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, left) in from.chars().enumerate() {
        let mut corner = above;
        row[0] = above + 1;
        for (column, right) in to.iter().enumerate() {
            let replaced = corner + usize::from(left != *right);
            corner = row[column + 1];
            row[column + 1] = replaced.min(corner + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_finds_the_one_it_meant() {
        check("webhook.secrt", "webhook.secret");
        check("webhok.urls", "webhook.urls");
        check("listne", "listen");
    }

    #[test]
    fn the_distance_counts_single_changes() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }

    #[track_caller]
    fn check(word: &str, expected: &str) {
        let known = ["listen", "webhook.urls", "webhook.secret", "data_dir"];
        assert_eq!(nearest(word, known.into_iter()), Some(expected));
    }
}
