//! The part of JSON Schema that the schemas of this project use. An unknown keyword is a failure, so that none is
//! silently not checked.

use serde_json::Value;

/// Everything in `value` that `schema` does not allow, each with its path.
pub(crate) fn violations(schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let Some(rules) = schema.as_object() else { return vec![format!("{path}: a schema must be an object")] };
    for (keyword, rule) in rules {
        match keyword.as_str() {
            "$schema" | "$id" | "title" | "description" | "required" | "properties" => {}
            "type" => {
                let allowed: Vec<&str> = match rule {
                    Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
                    name => name.as_str().into_iter().collect(),
                };
                if !allowed.iter().any(|name| is(value, name)) {
                    found.push(format!("{path}: {value} is not {allowed:?}"));
                }
            }
            "const" if value != rule => found.push(format!("{path}: {value} is not {rule}")),
            "enum" if !rule.as_array().is_some_and(|names| names.contains(value)) => {
                found.push(format!("{path}: {value} is not one of {rule}"));
            }
            "minimum" if value.as_f64().is_some_and(|n| n < rule.as_f64().unwrap_or(0.0)) => {
                found.push(format!("{path}: {value} is below {rule}"));
            }
            "maximum" if value.as_f64().is_some_and(|n| n > rule.as_f64().unwrap_or(0.0)) => {
                found.push(format!("{path}: {value} is above {rule}"));
            }
            "minItems" if value.as_array().is_some_and(|items| (items.len() as u64) < rule.as_u64().unwrap_or(0)) => {
                found.push(format!("{path}: fewer than {rule} items"));
            }
            "maxItems" if value.as_array().is_some_and(|items| items.len() as u64 > rule.as_u64().unwrap_or(0)) => {
                found.push(format!("{path}: more than {rule} items"));
            }
            "const" | "enum" | "minimum" | "maximum" | "minItems" | "maxItems" => {}
            "pattern" => {
                assert_eq!(rule, "^[0-9a-f]{16}$", "the only pattern known");
                let fits = value.as_str().is_some_and(|text| {
                    text.len() == 16 && text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
                });
                if !fits {
                    found.push(format!("{path}: {value} is not a hash"));
                }
            }
            "items" => {
                for (nr, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(violations(rule, item, &format!("{path}[{nr}]")));
                }
            }
            "oneOf" => {
                let all: Vec<Vec<String>> =
                    rule.as_array().into_iter().flatten().map(|schema| violations(schema, value, path)).collect();
                if all.iter().filter(|violations| violations.is_empty()).count() != 1 {
                    found.push(format!("{path}: not exactly one of the forms: {all:?}"));
                }
            }
            "additionalProperties" => {
                let known = rules.get("properties").and_then(Value::as_object);
                for (key, item) in value.as_object().into_iter().flatten() {
                    if known.is_some_and(|known| known.contains_key(key)) {
                        continue;
                    }
                    match rule {
                        Value::Bool(false) => found.push(format!("{path}.{key} is not in the schema")),
                        rule => found.extend(violations(rule, item, &format!("{path}.{key}"))),
                    }
                }
            }
            other => found.push(format!("{path}: keyword `{other}` is not known here")),
        }
    }
    if let Some(object) = value.as_object() {
        for key in rules.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(key) {
                found.push(format!("{path}.{key} is missing"));
            }
        }
        for (key, rule) in rules.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(item) = object.get(key) {
                found.extend(violations(rule, item, &format!("{path}.{key}")));
            }
        }
    }
    found
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => false,
    }
}
