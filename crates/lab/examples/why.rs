use iowhy_lab::explain::{self, source};
use iowhy_lab::incident::command::plan_of_command;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let n: u32 = args[0].parse().unwrap();
    let side = |line: &str, first| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let plan = plan_of_command(&words).unwrap_or_else(|p| panic!("{}", p.render()));
        source::simulate(line, &plan, (first, n), &|| {}).unwrap()
    };
    let (a, b) = (side(&args[1], 0), side(&args[2], n));
    let e = explain::explain(&a, &b, None);
    println!("{:.1} us -> {:.1} us ({:+.1} %) {:?} {}", e.time_ns[0] / 1e3, e.time_ns[1] / 1e3, e.change_pct, e.verdict, e.because);
    for l in &e.layers { println!("  {:18} {:12.2} {:12.2} {:+12.2} us", l.layer, l.a / 1e3, l.b / 1e3, l.delta() / 1e3); }
    for f in &e.findings {
        println!("* {} {:.2} {:.0} %: {}", f.rule.name, f.confidence, f.share_pct, f.claim);
        for v in &f.evidence { println!("     {} {:.4} -> {:.4} {}", v.what, v.a, v.b, v.unit.word()); }
    }
    for w in &e.warnings { println!("! {w}"); }
    if args.len() > 3 { println!("{:#?}\n{:#?}", short(&a.runs[0]), short(&b.runs[0])); }
}
fn short(d: &explain::digest::Digest) -> String {
    let c = &d.commands;
    format!("{:?}\n{:?}\nwindows {:?} {:?} ahead {} used {} thrashed {} missed {} split {} closes {:?} median {}\nbios {:?} could {:?} joined {:?} refused {:?} none {}\nplugs {:?} starved {} held {} ahead {}\nissued {:?} sizes {} max {} cut {:?} contiguous {:?} choices {} oldest {} up {} seeks {} deepest {} limit {} idlewait {} idles {} {} busy {}\nsync {} {} foreign {:?} time {:?}", d.workload, d.cache, d.windows.count, d.windows.pages, d.windows.ahead, d.windows.used, d.windows.thrashed, d.windows.calls_missed, d.windows.calls_split, d.windows.closes, d.windows.sizes.median(), d.bios.count, d.bios.could_join, d.bios.joined, d.bios.refused, d.bios.without_request, d.plugs.unplugs, d.plugs.device_starved, d.plugs.held.mean(), d.plugs.held_ahead.mean(), c.issued, c.sizes[0].mean(), c.sizes[0].max(), c.cut, c.contiguous, c.choices, c.oldest, c.next_up, c.seeks, c.deepest, c.depth_limit(), c.idle_waiting, c.idles, c.idle_time, c.busy, d.sync.commits, d.sync.throttles, d.foreign.reads, d.time)
}
