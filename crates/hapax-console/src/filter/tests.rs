//! Tests of the filter language: valid filters, errors, and round trips.

use proptest::prelude::*;

use super::*;

#[test]
fn the_filter_of_the_guide_is_read() {
    let text = "type:order.* state:dead dest:mail key:8e03 attempt>3 age>5m tenant:acme";
    let read = Filter::parse(text).unwrap();
    assert_eq!(read.one(Qualifier::Type), Some("order.*"));
    assert_eq!(read.one(Qualifier::Dest), Some("mail"));
    assert_eq!(read.attempts_min(), 4);
    assert_eq!(read.ages(), (Some(Duration::from_mins(5)), None));
    assert_eq!(read.to_string(), text);
}

#[test]
fn quoted_values_and_bare_words_are_read() {
    let read = Filter::parse("error:\"connection \\\"refused\\\"\" timeout \"two words\"").unwrap();
    assert_eq!(read.one(Qualifier::Error), Some("connection \"refused\""));
    assert_eq!(read.words, ["timeout", "two words"]);
}

#[test]
fn a_state_may_be_given_twice_and_a_type_may_not() {
    let read = Filter::parse("state:dead state:retrying").unwrap();
    assert_eq!(
        read.every(Qualifier::State).collect::<Vec<_>>(),
        ["dead", "retrying"]
    );
    refused("type:a type:b", "type: is given twice");
}

#[test]
fn what_is_not_understood_is_refused_with_what_was_meant() {
    refused("stat:dead", "there is no stat: — did you mean state:?");
    refused("destination:mail", "did you mean dest:?");
    refused("attempts>3", "did you mean attempt>?");
    refused("attempt:3", "attempt: has to be compared: attempt>3");
    refused("attempt>many", "attempt: takes a whole number");
    refused("age>soon", "age: takes a time such as");
    refused("type>3", "type: cannot be compared");
    refused("type:", "type: needs a value");
    refused("type:\"order", "a quotation mark is not closed");
    refused(&"a ".repeat(600), "at most 1024 bytes");
    refused(&"a ".repeat(17), "at most 16 terms");
}

#[test]
fn a_page_refuses_what_it_cannot_apply() {
    let read = Filter::parse("key:8e03").unwrap();
    let wrong = read
        .check(&[Qualifier::Type, Qualifier::State], true)
        .unwrap_err();
    assert!(wrong.0.contains("use type, state"), "{wrong:?}");
    let read = Filter::parse("word").unwrap();
    assert!(read.check(&[Qualifier::Type], false).is_err());
    read.check(&[Qualifier::Type], true).unwrap();
}

#[test]
fn a_filter_is_as_long_as_it_is_written() {
    // Each word gets quotation marks, and its backslashes are doubled.
    refused(&format!(":{}", "\\".repeat(600)), "at most 1024 bytes");
    let glued = "\"a b\"".repeat(16);
    assert_eq!(Filter::parse(&glued).unwrap().to_string().len(), 95);
    let long = format!("\"{} b\"", "a".repeat(59)).repeat(16);
    assert_eq!(long.len(), 1008);
    refused(
        &long.replacen('b', &"b".repeat(16), 1),
        "at most 1024 bytes",
    );
}

#[track_caller]
fn refused(text: &str, why: &str) {
    let wrong = Filter::parse(text).unwrap_err();
    assert!(wrong.0.contains(why), "{text:?}: {wrong:?}");
}

fn term() -> impl Strategy<Value = Term> {
    let plain = (0..Qualifier::ALL.len(), "[^\0]{1,12}").prop_map(|(at, value)| Term {
        qualifier: Qualifier::ALL[at].0,
        op: Op::Is,
        value,
    });
    let attempt = (any::<u32>(), any::<bool>()).prop_map(|(count, over)| Term {
        qualifier: Qualifier::Attempt,
        op: if over { Op::Over } else { Op::AtLeast },
        value: count.to_string(),
    });
    let age = (1..100_u32, any::<bool>()).prop_map(|(count, over)| Term {
        qualifier: Qualifier::Age,
        op: if over { Op::Over } else { Op::Under },
        value: format!("{count}m"),
    });
    let plain = plain.prop_filter("compared ones are made apart", |it| {
        !matches!(it.qualifier, Qualifier::Attempt | Qualifier::Age)
    });
    prop_oneof![plain, attempt, age]
}

proptest! {
    #[test]
    fn nothing_that_is_typed_ends_the_reader(text in any::<String>()) {
        let _read = Filter::parse(&text);
    }

    #[test]
    fn what_is_written_is_read_back_the_same(
        terms in prop::collection::vec(term(), 0..5),
        words in prop::collection::vec("[^\0]{1,12}", 0..4),
    ) {
        let mut seen: Vec<Qualifier> = Vec::new();
        let mut kept = terms;
        kept.retain(|it| {
            let repeats = matches!(
                it.qualifier,
                Qualifier::State | Qualifier::Age | Qualifier::Attempt
            );
            let new = repeats || !seen.contains(&it.qualifier);
            seen.push(it.qualifier);
            new
        });
        let filter = Filter { terms: kept, words };
        let written = filter.to_string();
        prop_assert_eq!(Filter::parse(&written), Ok(filter), "{}", written);
    }

    #[test]
    fn what_is_read_is_written_and_read_back_the_same(text in "[a-z:>=\"\\\\ 0-9m]{0,40}") {
        if let Ok(read) = Filter::parse(&text) {
            prop_assert_eq!(Filter::parse(&read.to_string()), Ok(read));
        }
    }

    #[test]
    fn an_unknown_qualifier_is_never_dropped(name in "[a-z]{1,10}", value in "[a-z]{1,5}") {
        let known = Qualifier::ALL.iter().any(|(_, word)| *word == name);
        let read = Filter::parse(&format!("{name}:{value}"));
        match read {
            Ok(filter) => prop_assert!(known && filter.terms.len() == 1),
            Err(wrong) => prop_assert!(!known || wrong.0.contains("compared"), "{:?}", wrong),
        }
    }
}
