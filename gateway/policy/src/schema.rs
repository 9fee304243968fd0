//! A component's JSON Schema, and whether a configuration fits it. Checked before the guest sees the configuration, so that
//! the operator is told the place of every mistake at once.
//!
//! What never happens here: fetching a schema that another one names.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::component::printable;

/// Most references in one schema. References that refer twice each to the next one are checked 2^n times, so their number
/// bounds what a check can cost; the schemas of ours have none.
const REFERENCES_MAX: usize = 24;

/// Deepest nesting of a schema or a configuration, less than the reader's own bound of 128.
const DEPTH_MAX: usize = 64;

/// Mistakes that are named; the others are counted.
const MISTAKES_MAX: usize = 10;

/// A schema that can be checked against.
pub(crate) struct Schema(Validator);

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let broken = |problem: &str| format!("the schema of its configuration is broken: {}", printable(problem));
        let schema: Value = serde_json::from_str(text).map_err(|error| broken(&error.to_string()))?;
        let mut references = 0;
        measure(&schema, 0, &mut references).map_err(|problem| broken(&problem))?;
        // Patterns of this kind take time in proportion to the text, whatever the pattern.
        let options = jsonschema::draft202012::options().offline().with_pattern_options(PatternOptions::regex());
        options.build(&schema).map(Self).map_err(|error| broken(&error.to_string()))
    }

    /// Whether `config`, a JSON document, fits.
    ///
    /// # Errors
    /// Every mistake with its place, on one line.
    pub(crate) fn check(&self, config: &str) -> Result<(), String> {
        let config: Value = serde_json::from_str(config).map_err(|error| format!("its configuration is not JSON: {error}"))?;
        measure(&config, 0, &mut 0).map_err(|problem| format!("its configuration is not usable: {problem}"))?;
        let mistakes: Vec<String> =
            self.0.iter_errors(&config).map(|error| mistake(error.instance_path().as_str(), &error.to_string())).collect();
        if mistakes.is_empty() {
            return Ok(());
        }
        let named = mistakes.iter().take(MISTAKES_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
        let more = mistakes.len().saturating_sub(MISTAKES_MAX);
        Err(format!(
            "its configuration does not fit its schema: {named}{}",
            if more > 0 { format!("; and {more} more") } else { String::new() }
        ))
    }
}

/// The place is a JSON pointer (RFC 6901), in which the whole document is an empty text.
fn mistake(place: &str, problem: &str) -> String {
    format!("{}: {}", if place.is_empty() { "/" } else { place }, printable(problem))
}

/// Refuses what would cost too much to walk through.
fn measure(value: &Value, depth: usize, references: &mut usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("it is nested more than {DEPTH_MAX} deep"));
    }
    match value {
        Value::Object(members) => {
            *references += members.keys().filter(|key| matches!(key.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef")).count();
            if *references > REFERENCES_MAX {
                return Err(format!("it has more than {REFERENCES_MAX} references"));
            }
            members.values().try_for_each(|member| measure(member, depth + 1, references))
        }
        Value::Array(items) => items.iter().try_for_each(|item| measure(item, depth + 1, references)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        let budget = json!({"type": "object", "required": ["name"], "properties": {"limit": {"type": "integer", "minimum": 1}}});
        let schema =
            json!({"type": "object", "additionalProperties": false, "properties": {"budgets": {"type": "array", "items": budget}}});
        Schema::read(&schema.to_string()).unwrap()
    }

    #[test]
    fn what_fits_passes() {
        for config in ["{}", r#"{"budgets": []}"#, r#"{"budgets": [{"name": "a", "limit": 1}]}"#] {
            assert_eq!(schema().check(config), Ok(()), "{config}");
        }
    }

    #[test]
    fn every_mistake_is_named_with_its_place_on_one_line() {
        let refused = schema().check(r#"{"budgets": [{"name": "a", "limit": 0}, {"limit": "x"}], "bugdets": 1}"#).unwrap_err();
        assert!(refused.starts_with("its configuration does not fit its schema: "), "{refused}");
        for part in [
            "/budgets/0/limit: 0 is less than",
            "/budgets/1/limit: \"x\" is not of type",
            "/budgets/1: \"name\" is a required",
            "/: ",
            "'bugdets'",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert_eq!(refused.lines().count(), 1);
        assert!(schema().check("{").unwrap_err().contains("not JSON"));
    }

    #[test]
    fn a_flood_of_mistakes_is_counted() {
        let refused = schema().check(&json!({"budgets": vec![0; 1_000]}).to_string()).unwrap_err();
        assert!(refused.ends_with("; and 990 more") && refused.len() < 5_000, "{refused}");
    }

    #[test]
    fn a_broken_or_hostile_schema_is_refused() {
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let references = json!({"allOf": vec![json!({"$ref": "#/$defs/a"}); REFERENCES_MAX + 1], "$defs": {"a": {}}}).to_string();
        for text in [
            "",
            "{",
            r#"{"type": 7}"#,
            r#"{"pattern": "("}"#,
            r#"{"$ref": "https://elsewhere.example/schema.json"}"#,
            r#"{"$ref": "file:///etc/passwd"}"#,
            deep.as_str(),
            references.as_str(),
        ] {
            let refused = Schema::read(text).err().unwrap_or_else(|| panic!("{text}"));
            assert!(refused.starts_with("the schema of its configuration is broken: ") && refused.lines().count() == 1, "{refused}");
        }
    }

    #[test]
    fn a_schema_that_means_itself_comes_to_an_end() {
        let loops = [
            r##"{"$ref": "#"}"##,
            r##"{"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}"##,
            r##"{"properties": {"a": {"$ref": "#"}}}"##,
        ];
        for text in loops {
            // Whether it fits or not: there is an answer.
            if let Ok(schema) = Schema::read(text) {
                let _ = schema.check(r#"{"a": {"a": {"a": 1}}}"#);
            }
        }
    }

    #[test]
    fn a_pattern_takes_time_in_proportion_to_the_text() {
        let schema = Schema::read(r#"{"properties": {"a": {"pattern": "^(a+)+$"}}}"#).unwrap();
        assert!(schema.check(&json!({"a": format!("{}!", "a".repeat(10_000))}).to_string()).is_err());
    }
}
