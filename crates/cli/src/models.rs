//! `iowhy models`.

use iowhy_lab::plant::page;
use iowhy_lab::{models, place};
use iowhy_text::diagnose::{Problem, Problems, Span};

use crate::output::{self, Exit};

/// Options of `iowhy models`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Kind to list (`iowhy models` lists them)
    kind: Option<String>,
    /// Only this one, with sources and tunables
    name: Option<String>,
    /// Of the kind `kernel`: list what differs from this one
    #[arg(long, value_name = "NAME", requires = "name", conflicts_with_all = ["details", "markdown"])]
    against: Option<String>,
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
    if let (Some(name), Some(other)) = (&arguments.name, &arguments.against) {
        return against(kind.unwrap_or_default(), [name, other], arguments.json);
    }
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

/// Lists what differs between two kernels.
fn against(kind: &str, names: [&str; 2], json: bool) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    if kind != "kernel" {
        let text = format!("`{kind}` cannot be compared: --against lists differences of kernels");
        problems.push(Problem::error(text).at(Span::whole(kind)).help("iowhy models kernel NAME --against NAME"));
    }
    let found = names.map(|name| match place::named(name) {
        Ok((kernel, warning)) => {
            problems.list.extend(warning.map(|problem| problem.at(Span::whole(name))));
            Some(kernel)
        }
        Err(problem) => {
            problems.push(problem.at(Span::whole(name)));
            None
        }
    });
    output::report_all(&problems);
    let [Some(one), Some(other)] = found else { return Ok(Exit::Usage) };
    if problems.any_error() {
        return Ok(Exit::Usage);
    }
    let (names, differences) = ([one.name, other.name], models::against(one, other));
    if json {
        output::print_json(&models::against_json(names, &differences))?;
    } else {
        output::print(&models::against_text(names, &differences, output::bold()))?;
    }
    Ok(Exit::Fine)
}
