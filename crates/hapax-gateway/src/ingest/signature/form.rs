//! Names and values of a form or a query, as bytes.
//!
//! A sender signs the decoded bytes, which need not be UTF-8. What is not a valid escape stays as
//! it is, as in the URL standard.

use percent_encoding::percent_decode;

/// The pairs of a form, decoded, in the order in which they arrived.
pub(super) fn pairs(form: &[u8]) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let pairs = form.split(|byte| *byte == b'&');
    pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = match equals {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &[][..]),
        };
        (decoded(name), decoded(value))
    })
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let space = |byte: &u8| if *byte == b'+' { b' ' } else { *byte };
    let spaced: Vec<u8> = text.iter().map(space).collect();
    percent_decode(&spaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_and_keep_their_order() {
        let form = b"b=%2B1+2&&a=&c&b=x%3Dy=z&%C3%A9=%FF%2";
        let pairs: Vec<_> = pairs(form).collect();
        let expected: [(&[u8], &[u8]); 5] = [
            (b"b", b"+1 2"),
            (b"a", b""),
            (b"c", b""),
            (b"b", b"x=y=z"),
            ("é".as_bytes(), b"\xff%2"),
        ];
        let expected = expected.map(|(name, value)| (name.to_vec(), value.to_vec()));
        assert_eq!(pairs, expected);
    }
}
