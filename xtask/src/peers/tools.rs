//! fio's tools that read its output, on the output of both sides.
//!
//! A tool reads a side if it succeeds and prints what it prints of fio's files, numbers aside.

use super::{Ground, Row, SIDES};

/// A tool: its name, and a script that ends well if the tool did; `$1` is the folder of its sources.
pub(super) struct Tool {
    pub name: &'static str,
    pub script: &'static str,
}

/// Makes the files that tools read, with the `fio` of a side.
const FILES: &str = "fio --output-format=json+ --output=out.json --name=a --size=2m --rw=randrw --bs=4k \
                     --write_bw_log=a --write_lat_log=a --write_iops_log=a --write_hist_log=a \
                     --log_hist_msec=100 --rate_iops=256,256";

const TOOLS: &[Tool] = &[
    Tool { name: "fiologparser.py", script: "python3 $1/tools/fiologparser.py -i 500 -a a_lat.1.log | head -3" },
    Tool { name: "fiologparser.py -f", script: "python3 $1/tools/fiologparser.py -i 500 -f a_bw.1.log | head -1" },
    Tool {
        name: "fio-histo-log-pctiles.py",
        script: "python3 $1/tools/hist/fio-histo-log-pctiles.py --time-quantum 1 a_clat_hist.1.log | \
                 sed -n 1,11p",
    },
    Tool {
        name: "fio_jsonplus_clat2csv",
        script: "python3 $1/tools/fio_jsonplus_clat2csv out.json out.csv && ls *.csv && head -n 1 *.csv &&
                 python3 $1/tools/fio_jsonplus_clat2csv out.json out.csv --validate",
    },
    Tool {
        name: "fio2gnuplot",
        script: "python3 $1/tools/plot/fio2gnuplot -b && python3 $1/tools/plot/fio2gnuplot -i && ls",
    },
    Tool {
        name: "genfio",
        script: "touch f && bash $1/tools/genfio -d $PWD/f -z 1m -r 1 -b 4k && fio --parse-only *.fio",
    },
    Tool {
        name: "fio-verify-state",
        script: "fio --name=s --size=64k --rw=randwrite --verify=crc32c --number_ios=8 --do_verify=0 \
                 --verify_state_save=1 --output=/dev/null && fio-verify-state *verify.state | grep -v CRC",
    },
];

/// With a library that Debian's fio only suggests.
const HISTOGRAMS: Tool = Tool {
    name: "fiologparser_hist.py",
    script: "python3 $1/tools/hist/fiologparser_hist.py a_clat_hist.1.log | head -n 2",
};

pub(super) fn run(ground: &Ground) -> Result<Vec<Row>, String> {
    let tools = TOOLS.iter().chain(ground.whole.then_some(&HISTOGRAMS));
    Ok(vec![read(ground, "tools of fio that read its output", &ground.source, FILES, tools)?])
}

/// How many tools read what both sides have made.
pub(super) fn read(
    ground: &Ground,
    name: &str,
    sources: &std::path::Path,
    files: &str,
    tools: impl IntoIterator<Item = &'static Tool>,
) -> Result<Row, String> {
    let tools: Vec<&Tool> = tools.into_iter().collect();
    let mut shapes = Vec::new();
    for side in SIDES {
        let folder = ground.cell(side)?;
        let shell = |script: &str| {
            let mut command = ground.command(side, "sh", &folder);
            command.args(["-c", &format!("set -e\n{script}"), "sh"]).arg(sources);
            ground.run(&mut command, 120)
        };
        let made = shell(files)?;
        if made.code != Some(0) {
            return Err(format!("{files}: {}", made.text.trim()));
        }
        let mut found = Vec::new();
        for tool in &tools {
            let said = shell(tool.script)?;
            let said = said.code.map(|code| (code, shape(&said.text.replace(&folder.display().to_string(), "."))));
            found.push(said);
        }
        shapes.push(found);
    }
    let cells = tools.iter().enumerate().filter(|(nr, tool)| {
        let works = matches!(&shapes[0][*nr], Some((0, _)));
        if !works || shapes[0][*nr] != shapes[1][*nr] {
            eprintln!("xtask: {}: {:?}, {:?}", tool.name, shapes[0][*nr], shapes[1][*nr]);
        }
        works
    });
    Ok(Row::new(name, 100, cells.map(|(nr, tool)| (tool.name.to_owned(), shapes[0][nr] == shapes[1][nr]))))
}

/// Output with one sign for each number and one blank for blanks.
fn shape(text: &str) -> String {
    let mut found = String::new();
    for c in text.chars() {
        let (c, run) = match c {
            '0'..='9' | '.' if c != '.' || found.ends_with('9') => ('9', true),
            ' ' | '\t' => (' ', true),
            c => (c, false),
        };
        if !run || !found.ends_with(c) {
            found.push(c);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::shape;

    #[test]
    fn shapes_have_no_numbers() {
        assert_eq!(shape("a  1.25,3 .b 007\n"), "a 9,9 .b 9\n");
        assert_eq!(shape("x1_bw.1.log"), "x9_bw.9log");
    }
}
