//! `iowhy models`.

use iowhy_lab::models;
use iowhy_lab::plant::page;

use crate::output::{self, Exit};

/// Options of `iowhy models`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Kind to show with sources and tunables (`iowhy models` lists them)
    kind: Option<String>,
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
    let models = match models::catalogue(kind) {
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
        let mut text = models::text(&models, kind.is_some(), output::bold());
        if kind.is_none() {
            text.push_str("\n`iowhy models KIND` shows sources and tunables.\n");
        }
        output::print(&text)?;
    }
    Ok(Exit::Fine)
}
