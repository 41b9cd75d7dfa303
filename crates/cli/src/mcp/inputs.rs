//! The inputs of a tool: the arguments of its verb as a JSON Schema, and values for them as words.

use std::any::TypeId;
use std::sync::Arc;

use clap::{Arg, ArgAction, Command};
use iowhy_text::diagnose::{Problem, Problems};
use rmcp::model::JsonObject;
use serde_json::{Value, json};

use super::Tool;

/// Arguments without an input: every answer is JSON, and help is the description.
const NEVER: [&str; 3] = ["json", "help", "version"];

/// The arguments that a tool takes from its verb.
fn inputs<'a>(tool: &Tool, verb: &'a Command) -> impl Iterator<Item = &'a Arg> {
    let kept = |arg: &Arg| !arg.is_hide_set() && !NEVER.iter().chain(tool.without).any(|id| arg.get_id() == *id);
    verb.get_arguments().filter(move |arg| kept(arg))
}

/// How it is called: the long option, or the name of the field.
fn name(arg: &Arg) -> String {
    arg.get_long().unwrap_or(arg.get_id().as_str()).replace('-', "_")
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// The words behind the verb that it reads itself, or passes on.
fn is_foreign(arg: &Arg) -> bool {
    arg.is_last_set() || arg.is_trailing_var_arg_set()
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
        || is_foreign(arg)
        || arg.get_num_args().is_some_and(|of| of.max_values() > 1)
}

fn is_whole_number(arg: &Arg) -> bool {
    let of = arg.get_value_parser().type_id();
    of == TypeId::of::<u16>() || of == TypeId::of::<u32>() || of == TypeId::of::<u64>()
}

/// Of one value.
fn item(arg: &Arg) -> Value {
    let names: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    match is_whole_number(arg) {
        true => json!({ "type": "integer", "minimum": 0 }),
        false if names.is_empty() => json!({ "type": "string" }),
        false => json!({ "type": "string", "enum": names }),
    }
}

fn property(arg: &Arg) -> Value {
    let mut of = match (is_flag(arg), is_list(arg)) {
        (true, _) => json!({ "type": "boolean" }),
        (_, true) => json!({ "type": "array", "items": item(arg) }),
        _ => item(arg),
    };
    let count = arg.get_num_args().filter(|_| is_list(arg) && arg.is_required_set());
    if let Some(count) = count {
        of["minItems"] = json!(count.min_values().max(1));
        if count.max_values() < usize::MAX {
            of["maxItems"] = json!(count.max_values());
        }
    }
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let default: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !is_flag(arg) && !default.is_empty() {
        text.push_str(&format!(" [default: {}]", default.join(" ")));
    }
    of["description"] = json!(text);
    of
}

/// The JSON Schema of the inputs.
pub(super) fn schema(tool: &Tool, verb: &Command) -> Arc<JsonObject> {
    let properties: JsonObject = inputs(tool, verb).map(|arg| (name(arg), property(arg))).collect();
    let required: Vec<_> = inputs(tool, verb).filter(|arg| arg.is_required_set()).map(name).collect();
    let mut of = JsonObject::new();
    of.insert("type".to_owned(), json!("object"));
    of.insert("properties".to_owned(), Value::Object(properties));
    of.insert("required".to_owned(), json!(required));
    of.insert("additionalProperties".to_owned(), json!(false));
    Arc::new(of)
}

/// A value as a word.
fn word(arg: &Arg, value: &Value) -> Result<String, Problem> {
    let wrong = |what: &str| Problem::error(format!("`{}` takes {what}, and not {value}", name(arg)));
    let word = match value {
        Value::String(word) => word.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(wrong(if is_whole_number(arg) { "a number" } else { "text" })),
    };
    if word.contains('\0') {
        return Err(wrong("text without zero bytes"));
    }
    if word.starts_with("--allow-write") {
        let problem = Problem::error(format!("`{}` holds `{word}`", name(arg)));
        return Err(problem.help("files that iowhy did not create are overwritten by people only, not by tools"));
    }
    if arg.is_positional() && !is_foreign(arg) && word.starts_with('-') {
        return Err(wrong("names, which do not begin with `-`"));
    }
    Ok(word)
}

/// The words of an input.
fn words_of(arg: &Arg, value: &Value) -> Result<Vec<String>, Problem> {
    let one = std::slice::from_ref(value);
    match value {
        Value::Array(values) if is_list(arg) => values.iter().map(|value| word(arg, value)).collect(),
        _ => one.iter().map(|value| word(arg, value)).collect(),
    }
}

/// The words of a call, or everything that is wrong with it.
pub(super) fn words(tool: &Tool, verb: &Command, given: &JsonObject) -> Result<Vec<String>, Problems> {
    let mut problems = Problems::default();
    for key in given.keys().filter(|key| !inputs(tool, verb).any(|arg| name(arg) == **key)) {
        let problem = Problem::error(format!("`{}` has no input `{key}`", tool.name));
        problems.push(problem.near(key, inputs(tool, verb).map(name)));
    }
    let (mut options, mut places, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for arg in inputs(tool, verb) {
        let Some(value) = given.get(&name(arg)).filter(|value| !value.is_null()) else {
            if arg.is_required_set() {
                problems.push(Problem::error(format!("`{}` needs the input `{}`", tool.name, name(arg))));
            }
            continue;
        };
        let long = arg.get_long().map(|long| format!("--{long}"));
        match (long, value) {
            (Some(long), Value::Bool(set)) if is_flag(arg) => options.extend(set.then_some(long)),
            (_, _) if is_flag(arg) => {
                problems.push(Problem::error(format!("`{}` takes true or false, and not {value}", name(arg))));
            }
            (long, _) => match (words_of(arg, value), long) {
                (Ok(words), Some(long)) => options.extend(words.iter().map(|word| format!("{long}={word}"))),
                (Ok(words), None) if arg.is_last_set() => last = words,
                (Ok(words), None) => places.extend(words),
                (Err(problem), _) => problems.push(problem),
            },
        }
    }
    if problems.any_error() {
        return Err(problems);
    }
    let mut words: Vec<String> = tool.words.iter().map(|word| (*word).to_owned()).collect();
    words.push("--json".to_owned());
    words.extend(options.into_iter().chain(places));
    if !last.is_empty() {
        words.push("--".to_owned());
        words.append(&mut last);
    }
    Ok(words)
}
