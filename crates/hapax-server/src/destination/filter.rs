//! The filter of a declaration: a table of conditions, or the same as JSON in a text.

use hapax::filter::Filter;
use hapax_sinks::settings::JsonSetting;
use serde::{Deserialize, Serialize};

use super::SpecError;

/// A filter as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct FilterSetting(pub(crate) JsonSetting);

impl FilterSetting {
    /// The filter as JSON.
    pub(crate) fn text(&self) -> String {
        self.0.text()
    }

    /// Compiles the filter. The error names the place in it.
    pub(crate) fn compile(&self) -> Result<Filter, SpecError> {
        let compiled = Filter::parse(&self.text());
        compiled.map_err(|error| {
            let field = match error.place.as_str() {
                "" => "filter".to_owned(),
                place => format!("filter.{place}"),
            };
            SpecError::new(field, error.problem)
        })
    }
}

impl From<String> for FilterSetting {
    fn from(text: String) -> Self {
        Self(JsonSetting::Text(text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_and_a_text_are_filters() {
        for written in [
            json!({"/amount": {"$gte": 100.25}, "tenant": {"$in": ["a", "b"]}}),
            json!(r#"{"/amount": {"$gte": 12345678901234567890.25}}"#),
        ] {
            let setting = FilterSetting::deserialize(&written).unwrap();
            setting.compile().unwrap();
            assert_eq!(serde_json::to_value(&setting).unwrap(), written);
        }
    }

    #[test]
    fn an_error_names_the_place_in_the_filter() {
        for (written, field) in [
            (json!({"/a": {"$gtt": 1}}), "filter./a.$gtt"),
            (json!("{\"/a\": {\"$gtt\": 1}}"), "filter./a.$gtt"),
            (json!("{"), "filter"),
            (json!([]), "filter"),
            (json!(1), "filter"),
        ] {
            let setting = FilterSetting::deserialize(&written).unwrap();
            assert_eq!(setting.compile().unwrap_err().field, field, "{written}");
        }
    }
}
