//! `iowhy models`.

use iowhy_lab::models;
use iowhy_lab::plant::page;

use crate::output::{self, Exit};

/// Options of `iowhy models`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Kind to list (`iowhy models` lists them)
    kind: Option<String>,
    /// Only this one, with sources and tunables
    name: Option<String>,
    /// Sources and tunables of the whole kind
    #[arg(long, requires = "kind")]
    details: bool,
    /// One JSON object
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print docs/MODELS.md; of the kind `rule`, docs/RULES.md
    #[arg(long)]
    markdown: bool,
}

/// Lists models.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let kind = arguments.kind.as_deref();
    let found = models::catalogue(kind).and_then(|models| match &arguments.name {
        Some(name) => models::named(models, name),
        None => Ok(models),
    });
    let models = match found {
        Ok(models) => models,
        Err(problem) => {
            output::report(problem);
            return Ok(Exit::Usage);
        }
    };
    if arguments.json {
        output::print_json(&models::json(&models))?;
    } else if arguments.markdown && kind == Some("rule") {
        output::print(&page::markdown())?;
    } else if arguments.markdown {
        output::print(&models::markdown(&models))?;
    } else {
        let details = arguments.details || arguments.name.is_some();
        let mut text = models::text(&models, details, output::bold());
        match kind {
            Some(kind) if !details => {
                text.push_str(&format!("\n`iowhy models {kind} NAME` shows sources and tunables.\n"));
            }
            Some(_) => {}
            None => text.push_str("\n`iowhy models KIND NAME` shows sources and tunables.\n"),
        }
        output::print(&text)?;
    }
    Ok(Exit::Fine)
}
