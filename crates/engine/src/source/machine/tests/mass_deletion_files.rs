//! FU18: held-back mass deletions of files.

use super::*;
use crate::upstream::{Event, Hold};

const HOLD: Duration = Duration::from_secs(60);

/// The clusters of these numbers, with this content.
fn list(numbers: std::ops::Range<usize>, content: u32) -> String {
    numbers.map(|number| format!("c{number:02}={content} ")).collect()
}

/// Twenty clusters, watched by the wildcard and by two names.
fn holding(hold: Hold) -> Bench {
    let mut bench = Bench::new(Attachment::Files(Files::default()), SourceSettings::default());
    bench.source.hold_files(Some(hold));
    bench.state(&[(CDS, &list(0..20, 1)), (EDS, "e=1")]);
    bench.watch(1, CDS, "*");
    bench.watch(2, CDS, "c00 c15");
    events(&mut bench);
    bench
}

fn events(bench: &mut Bench) -> Vec<String> {
    let mut events = Vec::new();
    while let Some(output) = bench.source.poll_output() {
        let SourceOutput::Upstream(0, upstream::Output::Event(event)) = output else { continue };
        events.push(match event {
            Event::DeletionHeld { type_url, count, left, .. } => {
                format!("held {} {count}/{left}", type_url.short())
            }
            Event::DeletionWithdrawn { count, .. } => format!("back {count}"),
            Event::DeletionCarriedOut { count, .. } => format!("gone {count}"),
            Event::DeletionConfirmed { count, .. } => format!("confirmed {count}"),
            other => format!("{other:?}"),
        });
    }
    events
}

fn served(bench: &Bench) -> usize {
    bench.view(CDS, "*").split_whitespace().count()
}

#[test]
fn fu_18_a_mass_deletion_by_files_is_held_for_a_while() {
    let mut bench = holding(Hold::For(HOLD));
    // Ten of twenty are not more than half.
    bench.state(&[(CDS, &list(0..10, 1)), (EDS, "e=1")]);
    assert_eq!((served(&bench), events(&mut bench)), (10, Vec::new()));
    bench.state(&[(CDS, &list(0..20, 1)), (EDS, "e=1")]);
    bench.state(&[(CDS, &list(0..3, 2)), (EDS, "e=1")]);
    assert_eq!(events(&mut bench), ["held Cluster 17/3"]);
    assert_eq!((served(&bench), bench.view(CDS, "c00 c15")), (20, "c00=2 c15=1".to_owned()));
    assert_eq!(bench.source.held_back(&url(CDS)), 17);
    assert_eq!(bench.source.held_back_since(&url(CDS)), Some(bench.now));
    // A newcomer has the same.
    bench.watch(3, CDS, "c19");
    assert_eq!(bench.view(CDS, "c19"), "c19=1");
    // Some are back, with other content. The rest keeps its time.
    bench.advance(HOLD / 2);
    bench.state(&[(CDS, &list(0..5, 3)), (EDS, "e=1")]);
    assert_eq!((events(&mut bench), served(&bench)), (vec!["back 2".to_owned()], 20));
    bench.advance(HOLD / 2);
    assert_eq!((events(&mut bench), served(&bench)), (vec!["gone 15".to_owned()], 5));
    assert_eq!(bench.view(CDS, "c00 c15"), "c00=3 -c15");
    assert_eq!(bench.source.held_back(&url(CDS)), 0);
}

/// A type without a file is a deletion of all of it.
#[test]
fn fu_18_a_mass_deletion_by_files_waits_for_the_operator() {
    let mut bench = holding(Hold::UntilConfirmed);
    bench.state(&[(EDS, "e=1")]);
    assert_eq!((events(&mut bench), served(&bench)), (vec!["held Cluster 20/0".to_owned()], 20));
    bench.advance(HOLD * 1000);
    assert_eq!(served(&bench), 20);
    assert_eq!(bench.source.confirm_deletions(|type_url| *type_url == url(EDS), bench.now), 0);
    assert_eq!(bench.source.confirm_deletions(|_| true, bench.now), 20);
    assert_eq!((events(&mut bench), served(&bench)), (vec!["confirmed 20".to_owned()], 0));
}

/// A directory that cannot be read cannot restore the resources either.
#[test]
fn fu_18_a_hold_starts_anew_while_the_directory_is_bad() {
    let mut bench = holding(Hold::For(HOLD));
    bench.state(&[(EDS, "e=1")]);
    bench.source.handle_bad_files();
    bench.advance(HOLD);
    assert_eq!(served(&bench), 20);
    bench.state(&[(EDS, "e=1")]);
    bench.advance(HOLD);
    assert_eq!(
        (events(&mut bench), served(&bench)),
        (vec!["held Cluster 20/0".to_owned(), "gone 20".to_owned()], 0)
    );
}

#[test]
fn fu_18_without_a_policy_files_are_obeyed_at_once() {
    let mut bench = Bench::files(&[(CDS, &list(0..20, 1))]);
    bench.watch(1, CDS, "*");
    bench.state(&[(CDS, "c00=1")]);
    assert_eq!((events(&mut bench), served(&bench)), (Vec::new(), 1));
}
