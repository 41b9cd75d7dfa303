//! Published tables, and the same tables simulated, in the layout of the published ones.

use serde_json::{Value, json};

use super::file::{Figure, Incident, Table};
use super::{IncidentResult, RowResult};
use iowhy_compare::tables::{self, Layout};
use iowhy_stats::Better;
use iowhy_stats::figure::finite;

/// The layout in which the table was published.
fn layout(table: &Table) -> Layout {
    // Totals have a direction and were still printed without percents.
    if table.better.is_none() || table.statistic == "total" {
        Layout::MONITOR
    } else if table.name.starts_with("bonnie++") {
        Layout::OLD_BONNIE
    } else {
        Layout::OLD
    }
}

/// Names of the columns: the kernel and the variant without the remark in brackets.
fn columns(incident: &Incident) -> Vec<String> {
    let kernel = incident.kernel.as_deref().unwrap_or("");
    Table::COLUMNS
        .iter()
        .enumerate()
        .map(|(nr, column)| {
            let variant = incident.variants.get(nr).and_then(|variant| variant.split_whitespace().next());
            let variant = variant.unwrap_or(column);
            if kernel.is_empty() { variant.to_owned() } else { format!("{kernel}-{variant}") }
        })
        .collect()
}

/// The row's name as the table shows it: monitors name the device.
fn label(table: &Table, key: &str) -> String {
    match table.name.rsplit_once("iostat of ") {
        Some((_, device)) => format!("{device}-{key}"),
        None => key.to_owned(),
    }
}

fn render(incident: &Incident, table: &Table, rows: Vec<(String, Vec<f64>, Option<f64>)>) -> String {
    let layout = layout(table);
    let better = layout.percent_width.and(table.better.as_deref()).and_then(Better::parse);
    let statistic = if table.statistic == "total" { "" } else { table.statistic.as_str() };
    let columns = columns(incident);
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let figures: Vec<(&str, Vec<f64>)> = rows.iter().map(|(name, values, _)| (name.as_str(), values.clone())).collect();
    let mut shown = tables::figures(&columns, statistic, &figures, better);
    // Published percents were made of figures with more digits.
    for (line, (_, _, percent)) in shown.lines.iter_mut().zip(&rows) {
        if let (Some(cell), Some(percent)) = (line.cells.get_mut(1), percent) {
            cell.percent = Some(*percent);
        }
    }
    shown.render(&layout)
}

/// The table as it was published.
pub fn published_text(incident: &Incident, table: &Table) -> String {
    let figure = |column: usize, key: usize| table.figure(column, key).and_then(Figure::value).unwrap_or(f64::NAN);
    let rows = table.keys.iter().enumerate().map(|(nr, key)| {
        let values = (0..Table::COLUMNS.len()).map(|column| figure(column, nr)).collect();
        (label(table, key), values, table.percent(nr))
    });
    render(incident, table, rows.collect())
}

/// The simulated cells of a row of the table, if there are any.
fn cells<'a>(result: &'a IncidentResult, table: &Table, key: &str) -> Option<Vec<&'a RowResult>> {
    Table::COLUMNS.iter().map(|column| result.row(&table.cell_id(column, key))).collect()
}

/// The table as it was simulated: those rows that were.
pub fn simulated_text(result: &IncidentResult, table: &Table) -> Option<String> {
    let rows: Vec<(String, Vec<f64>, Option<f64>)> = table
        .keys
        .iter()
        .filter_map(|key| {
            let cells = cells(result, table, key)?;
            Some((label(table, key), cells.iter().map(|cell| cell.simulated()).collect(), None))
        })
        .collect();
    if rows.is_empty() { None } else { Some(render(&result.incident, table, rows)) }
}

/// All tables of an incident as JSON.
pub fn json(result: &IncidentResult) -> Vec<Value> {
    let one = |table: &Table| {
        let column = |nr: usize, name: &str| {
            let published = (0..table.keys.len()).map(|key| table.figure(nr, key).and_then(Figure::value));
            let simulated =
                table.keys.iter().map(|key| result.row(&table.cell_id(name, key)).map(RowResult::simulated));
            json!({
                "name": name,
                "published": published.collect::<Vec<_>>(),
                "simulated": simulated.map(|value| value.map(finite)).collect::<Vec<_>>(),
            })
        };
        let columns: Vec<Value> = Table::COLUMNS.iter().enumerate().map(|(nr, name)| column(nr, name)).collect();
        json!({
            "id": table.id(),
            "name": table.name,
            "statistic": table.statistic,
            "metric": table.metric,
            "better": table.better,
            "role": table.role,
            "note": table.note,
            "keys": table.keys,
            "columns": columns,
            "text": simulated_text(result, table),
        })
    };
    result.incident.tables.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::{INCIDENTS, IncidentError, file};

    fn window() -> Result<Incident, IncidentError> {
        let entry = INCIDENTS.iter().find(|entry| entry.id.starts_with("2018")).expect("it is known");
        file::parse(entry.id, entry.file)
    }

    #[test]
    fn published_tables_look_as_they_did() -> Result<(), IncidentError> {
        let incident = window()?;
        let text = |id: &str| {
            let table = incident.tables.iter().find(|table| table.id() == id).expect(id);
            published_text(&incident, table)
        };
        assert!(
            text("paralleldd-single-ext3-uma").ends_with("Amean    8        6.05 (  0.00%)        5.73 (  5.36%)\n")
        );
        assert!(
            text("paralleldd-single-ext3-uma-iostat-of-sda")
                .starts_with("                       4.4.0       4.4.0\n                     vanillareadahead-v1r1\n")
        );
        assert!(text("bonnie-ext3-uma-cpu-and-elapsed").contains("\nElapsed     10692.67    10588.08\n"));
        let row = "\nHmean    RandCreate del            90.91";
        assert!(!text("bonnie-ext3-uma").contains(row));
        assert!(
            text("bonnie-ext3-uma").contains("\nHmean    SeqOut Char            81079.98 (  0.00%)        81172.05")
        );
        Ok(())
    }

    #[test]
    fn every_cell_has_a_name_of_its_own_and_a_known_statistic() -> Result<(), IncidentError> {
        let incident = window()?;
        let mut ids = Vec::new();
        for table in &incident.tables {
            assert!(iowhy_stats::mmtests::Statistic::parse(&table.statistic).is_some(), "{}", table.name);
            for (column, key) in Table::COLUMNS.iter().flat_map(|c| table.keys.iter().map(move |k| (c, k))) {
                ids.push(table.cell_id(column, key));
            }
        }
        let number = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), number);
        assert!(ids.contains(&"paralleldd-single-ext3-uma/vanilla/3".to_owned()));
        Ok(())
    }
}
