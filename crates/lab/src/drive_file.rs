//! Drives in files: `--disk FILE` reads our TOML, or DiskSim's parameter files with those that they name.
//!
//! Either gives the options of the device `drive` and its tables. Every mistake is found in one go, with file, line and
//! column; what DiskSim can say and the model does not follow is a warning.

mod disksim;
mod own;

use std::path::Path;
use std::sync::Arc;

use iowhy_stack::device::drive::{ENTRY, layout};
use iowhy_stack::origin::{OptionSpec, Options};
use iowhy_stack::surfaces::{Geometry, Surfaces};
use iowhy_text::diagnose::{Problem, Problems, Span};

pub use own::write;

/// The longest such file that is read, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Ends of names that are files, though they do not exist.
const ENDS: &[&str] = &[".toml", ".parv", ".diskspecs"];

/// Whether a `--disk` of this name is a file.
pub fn is_file(name: &str) -> bool {
    ENDS.iter().any(|end| name.ends_with(end)) || name.contains('/')
}

/// The drive in a file.
pub fn load(path: &Path, problems: &mut Problems) -> Option<Options> {
    let file = Text::load(path, problems)?;
    let before = problems.list.len();
    let is_disksim = [".parv", ".diskspecs"].iter().any(|end| file.name.ends_with(end));
    let drive = if is_disksim { disksim::read(&file, path, problems) } else { own::read(&file, problems) };
    (!problems.any_error_since(before)).then_some(drive).flatten()
}

/// Mistakes in the tables of a drive after its options were changed.
pub fn mistakes(options: &Options) -> Vec<String> {
    let Some(surfaces) = options.surfaces() else { return Vec::new() };
    Geometry::mistakes(surfaces, &layout(options)).into_iter().map(|(_, mistake)| mistake).collect()
}

/// A file with its name, to point into.
struct Text {
    name: String,
    text: String,
}

impl Text {
    fn load(path: &Path, problems: &mut Problems) -> Option<Text> {
        let name = path.display().to_string();
        match iowhy_text::input::text(path, MOST_BYTES) {
            Ok(text) => Some(Text { name, text }),
            Err(error) => {
                problems
                    .push(Problem::error(format!("cannot read the drive `{name}`: {error}")).at(Span::whole(&name)));
                None
            }
        }
    }

    /// `problem` at the bytes `start .. end`: file, line and column, and the line underlined.
    fn at(&self, problem: Problem, start: usize, end: usize) -> Problem {
        let start = self.text.floor_char_boundary(start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        let line = &self.text[line_start..line_end];
        let nr = self.text[..start].matches('\n').count() + 1;
        let end = self.text.floor_char_boundary(end.min(line_end)).max(start);
        let span = Span::bytes(line, start - line_start, end - line_start);
        let message = format!("{}:{nr}:{}: {}", self.name, span.start + 1, problem.message);
        Problem { message, span: Some(span), ..problem }
    }
}

fn spec(name: &str) -> Option<&'static OptionSpec> {
    ENTRY.options.iter().find(|spec| spec.name == name)
}

/// The options with their tables, if these make sense; `at` points to a zone (or to the whole) for a mistake.
fn complete(
    mut options: Options,
    surfaces: Surfaces,
    says_capacity: bool,
    at: &dyn Fn(Problem, Option<usize>) -> Problem,
    problems: &mut Problems,
) -> Option<Options> {
    let layout = layout(&options);
    let mistakes = Geometry::mistakes(&surfaces, &layout);
    if !mistakes.is_empty() {
        mistakes.into_iter().for_each(|(zone, mistake)| problems.push(at(Problem::error(mistake), zone)));
        return None;
    }
    let holds = Geometry::new(&surfaces, layout).nr_sectors();
    let most = spec("nr_sectors").map_or(i64::MAX, |spec| spec.max);
    let holds = i64::try_from(holds).unwrap_or(i64::MAX);
    if !says_capacity && holds > most {
        problems.push(at(Problem::error(format!("the zones have {holds} sectors: the most is {most}")), None));
        return None;
    }
    if says_capacity && options.get("nr_sectors") > holds {
        let text = format!("`nr_sectors` is {}, but the zones have {holds} sectors", options.get("nr_sectors"));
        problems.push(at(Problem::error(text), None));
        return None;
    }
    if !says_capacity {
        options.set("nr_sectors", holds);
    }
    options.set_surfaces(Arc::new(surfaces));
    Some(options)
}
