//! Suggestion of the known name that is nearest to a mistyped one.

/// The name in `known` that is nearest to `word`; none if no name has anything in common with it.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A prefix of a known name, or a known name with a suffix, counts as near.
    let weigh = |candidate: &'a str| {
        let changes = distance(word, candidate);
        let begins =
            !word.is_empty() && (candidate.starts_with(word) || word.starts_with(candidate));
        (if begins { 0 } else { changes }, changes, candidate)
    };
    let alike = known
        .map(weigh)
        .filter(|(_, changes, candidate)| *changes < word.len().max(candidate.len()));
    alike.min().map(|(_, _, candidate)| candidate)
}

/// The edit distance: insertions, deletions and replacements of characters.
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
        let near = |word| nearest(word, ["type", "tenant", "state", "dest"].into_iter());
        assert_eq!(near("stat"), Some("state"));
        assert_eq!(near("destination"), Some("dest"));
        assert_eq!(near("typ"), Some("type"));
        assert_eq!(near("qqq"), None);
    }
}
