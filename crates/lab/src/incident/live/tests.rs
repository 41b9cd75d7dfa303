use super::*;
use crate::incident;
use crate::run::live::OnKernel;
use iowhy_text::diagnose::Problems;

fn resolves(words: &[String]) -> Result<Box<RunRequest>, Problems> {
    run::asked(words, &World::empty())
}

#[test]
fn every_incident_has_questions_or_a_reason_and_every_side_is_a_job_on_a_disk() {
    let known = incident::list().expect("they parse");
    assert_eq!(table::LIVE.len(), known.len());
    for incident in &known {
        let live = of(incident.id).unwrap_or_else(|| panic!("{} has no live part", incident.id));
        // Without a question there is a reason.
        let asked = live.questions.iter().any(|question| side(live, question.of).quick);
        assert!(asked || (live.sides.is_empty() && !live.not_shown.is_empty()), "{}", incident.id);
        for each in live.sides {
            let mut words: Vec<String> = each.job.split_whitespace().map(|word| word.replace("{}", "data")).collect();
            words.extend(["--on", "live"].map(str::to_owned));
            words.extend(each.ground.disk().map(|disk| format!("--disk={disk}")));
            let request = resolves(&words).unwrap_or_else(|problems| panic!("{}: {:?}", each.id, problems.list));
            assert_eq!(
                request.variants[0].backend::<OnKernel>().is_some_and(|of| of.modelled.is_some()),
                each.ground.disk().is_some(),
                "{}",
                each.id
            );
            let used = |question: &&Question| question.of == each.id || question.to.side() == Some(each.id);
            assert!(live.questions.iter().any(|question| used(&question)), "nobody asks about {}", each.id);
            assert!(
                each.held == ForeignPages::Nothing || each.ground.disk().is_none(),
                "pages are held on disks in memory"
            );
        }
        for question in live.questions {
            side(live, question.of);
            question.to.side().map(|to| side(live, to));
            let line = question.metric.split_once('.').map(|(line, _)| format!("--name={line}"));
            assert!(line.is_none_or(|line| side(live, question.of).job.contains(&line)), "{}", question.id);
            assert!(question.least_pct > 0.0 && !question.since.is_empty(), "{}", question.id);
            let traced = ["data_reads_of_4k_pct", "device_idle_pct"].contains(&question.metric);
            assert!(!traced || side(live, question.of).trace, "{} needs a trace", question.id);
            let rows = match question.beside {
                Reference::Rows(of, to) => vec![of, to],
                Reference::SmallReads(of) => vec![of],
                Reference::Claim(id, ..) => {
                    assert!(incident.incident.claims.iter().any(|claim| claim.id == id), "no claim {id}");
                    Vec::new()
                }
                Reference::Nothing => Vec::new(),
            };
            for row in rows.into_iter().filter(|row| !row.contains("-uma/") && !row.contains("-uma-amean/")) {
                assert!(incident::row(incident.id, row).is_ok(), "{}: no row {row}", incident.id);
            }
        }
    }
}

fn side(live: &Live, id: &str) -> &'static Side {
    live.sides.iter().find(|side| side.id == id).unwrap_or_else(|| panic!("no side {id}"))
}

fn ran(id: &str, values: &[f64]) -> SideResult {
    let side = table::LIVE.iter().flat_map(|live| live.sides).find(|side| side.id == id).expect("a side");
    let runs = values.iter().map(|value| BTreeMap::from([("write_mb_s".to_owned(), *value)])).collect();
    SideResult { side, place: LIVE.to_owned(), command: String::new(), runs, refused: None }
}

#[test]
fn answers_follow_intervals() {
    let question = &of("2010-cfq-direct-writers").expect("there is one").questions[0];
    for (bad, verdict) in [
        (&[900.0, 905.0, 902.0][..], Verdict::Happens),
        (&[999.0, 1001.0, 1000.0], Verdict::NoLonger),
        (&[1200.0, 1202.0, 1201.0], Verdict::NoLonger),
        (&[700.0, 1300.0, 940.0], Verdict::CannotTell),
        (&[900.0], Verdict::CannotTell),
        (&[], Verdict::CannotTell),
    ] {
        let (of, to) = (ran("idle", bad), ran("no-idle", &[1000.0, 1001.0, 999.0]));
        let answer = answer(question, Some(&of), Some(&to));
        assert_eq!(answer.verdict, verdict, "{bad:?}: {answer:?}");
        assert_eq!(answer.why.is_empty(), verdict == Verdict::Happens);
    }
    let (mut of, to) = (ran("idle", &[]), ran("no-idle", &[1000.0]));
    of.refused = Some("only root may".to_owned());
    assert_eq!(answer(question, Some(&of), Some(&to)).why, "only root may");
}

#[test]
fn a_share_is_held_against_its_limit() {
    let question = &of("2004-random-read-split").expect("there is one").questions[0];
    let shares = |values: &[f64]| {
        let mut side = ran("random-shared", &[]);
        side.runs = values.iter().map(|value| BTreeMap::from([(question.metric.to_owned(), *value)])).collect();
        answer(question, Some(&side), None).verdict
    };
    assert_eq!(shares(&[0.0, 0.4]), Verdict::NoLonger);
    assert_eq!(shares(&[0.0, 40.0]), Verdict::CannotTell);
    assert_eq!(shares(&[38.0, 40.0]), Verdict::Happens);
}
