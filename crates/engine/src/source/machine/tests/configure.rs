//! Other settings for a running source.

use super::*;

fn source(settings: &(SourceSettings, UpstreamSettings)) -> Source {
    let streams = Attachment::Streams(Box::new(Streams::new(settings.1.clone())));
    let mut source = Source::new(1, settings.0.clone(), streams);
    source.watch(SessionId(1), &url(EDS), &set("a"), Time::ZERO);
    source
}

/// The next timer after each of some events: the end of an attempt, an open stream with a request, and a name
/// that nobody wants any more.
fn timers(source: &mut Source) -> Vec<Option<Time>> {
    let mut timers = Vec::new();
    let mut at = |source: &mut Source, seconds| {
        timers.push(source.poll_timeout());
        Time::ZERO + Duration::from_secs(seconds)
    };
    let status = Status::new(Code::Unavailable, "down");
    let now = at(source, 1);
    source.handle_upstream(0, upstream::Input::Closed { status, jitter: 0.5 }, now);
    let now = at(source, 100);
    source.handle_timeout(now);
    source.handle_upstream(0, upstream::Input::Opened, now);
    let now = at(source, 101);
    source.forget(SessionId(1), now);
    at(source, 102);
    timers
}

/// A configured source sets the timers of a source that was made with these settings.
#[test]
fn rel_5_a_running_source_obeys_other_settings_from_the_next_timer_on() {
    let old = (SourceSettings::default(), UpstreamSettings::default());
    let mut new = old.clone();
    new.0.linger = Duration::from_secs(2);
    new.1.resource_timeout = Duration::from_secs(3);
    new.1.backoff.initial = Duration::from_secs(7);
    let mut configured = source(&old);
    configured.configure(new.0.clone(), Some(&new.1), Time::ZERO);
    let (configured, made, left) =
        (timers(&mut configured), timers(&mut source(&new)), timers(&mut source(&old)));
    assert_eq!(configured, made);
    assert!(configured.iter().zip(&left).skip(1).all(|(new, old)| new != old), "{configured:?} {left:?}");
}
