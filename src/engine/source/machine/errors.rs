//! Errors of names: reported by the server, or implied by silence or an unreachable server (ERR-1, ERR-10).

use std::sync::Arc;

use super::Source;
use crate::engine::Time;
use crate::engine::annotations::ErrorKind;
use crate::engine::cache::Known;
use crate::engine::cache::expiry::Expiry;
use crate::engine::collection::CollectionKind;
use crate::engine::source::attachment::{Attachment, StreamIndex};
use crate::engine::upstream::Event;
use crate::xds::{Code, ResourceName, Status, TypeUrl};

impl Source {
    /// `server`: the server's name in errors. `tells_ttl`: clients of this class understand TTLs (TTL-1).
    #[must_use]
    pub fn of_server(mut self, server: Arc<str>, tells_ttl: bool) -> Source {
        self.upkeep.server = server;
        self.upkeep.expiry = Expiry::new(tells_ttl);
        self
    }

    /// Another server serves: errors name the new server from now on (ERR-9).
    pub fn set_server(&mut self, server: Arc<str>) {
        self.upkeep.server = server;
    }

    /// Records errors of names that the upstream reports or, by silence, implies (ERR-1, TMR-5).
    pub(super) fn take_errors(&mut self, index: StreamIndex, event: &Event, now: Time) {
        match event {
            Event::ResourceError { type_url, error } => {
                let status = self.upkeep.error(error.status.code, &error.status.message);
                let mut names = vec![error.name.clone()];
                // The error covers the name with any parameters. NOT_FOUND has removed each of these
                // resources elsewhere.
                if let Some(cache) = self.types.get(type_url).filter(|_| error.status.code != Code::NotFound)
                {
                    names.extend(cache.named.located(&error.name).cloned());
                }
                let errors = names.into_iter().map(|name| (name, status.clone())).collect();
                self.put_errors(index, type_url, errors, ErrorKind::Reported, now);
            }
            Event::Malformed { type_url, faults } => {
                let status = |reason: &str| self.upkeep.error(Code::InvalidArgument, reason);
                let errors = faults.iter().map(|(name, reason)| (name.clone(), status(reason))).collect();
                self.put_errors(index, type_url, errors, ErrorKind::Malformed, now);
            }
            Event::Timeout { type_url, names } => {
                let status = self.upkeep.error(Code::Unavailable, "no answer for this name in time");
                let errors = names.iter().map(|name| (name.clone(), status.clone())).collect();
                self.put_errors(index, type_url, errors, ErrorKind::Timeout, now);
            }
            Event::Heard => self.end_transient_errors(index, None, now),
            // The type is requested with the others again: its error is over.
            Event::BearsType { type_url } => self.end_transient_errors(index, Some(type_url), now),
            // The first end may have had another reason.
            Event::EndsStream { type_url, status, ends: 2.. } => {
                let text = format!("ends the stream when it is asked for this type ({status})");
                self.report_refused(index, type_url, &text, now);
            }
            Event::NotServed { type_url, status } => {
                self.report_refused(index, type_url, &format!("does not serve this type ({status})"), now);
            }
            _ => {}
        }
    }

    /// The event to pass on. Resources that came under the version of the held resource are reported only if
    /// their bytes differ (FU20). Must be called before the response is applied.
    pub(super) fn told(&self, index: StreamIndex, event: Event) -> Option<Event> {
        let Attachment::Streams(streams) = &self.attachment else { return None };
        let is_of_server = matches!(
            event,
            Event::Connected { .. } | Event::Disconnected { .. } | Event::Unreachable { .. } | Event::Heard
        );
        if is_of_server && streams.is_alone(index) {
            return None;
        }
        let Event::SameVersion { type_url, mut contents } = event else { return Some(event) };
        let (kind, cache) = (streams.kind_of(index, &type_url)?, self.types.get(&type_url)?);
        contents.retain(|(name, content)| {
            let held = match (kind, &cache.wildcard) {
                (CollectionKind::Names, _) => cache.named.known().get(name).and_then(Known::resource),
                (CollectionKind::Globs, _) => cache.globs.member(name),
                (CollectionKind::Wildcard, wildcard) => wildcard.as_ref().and_then(|held| held.member(name)),
            };
            held.is_some_and(|held| held.version != *content)
        });
        (!contents.is_empty()).then_some(Event::SameVersion { type_url, contents })
    }

    fn put_errors(
        &mut self,
        index: StreamIndex,
        type_url: &TypeUrl,
        errors: Vec<(ResourceName, Arc<Status>)>,
        error_kind: ErrorKind,
        now: Time,
    ) {
        let Attachment::Streams(streams) = &self.attachment else { return };
        let Some(kind) = streams.kind_of(index, type_url) else { return };
        let Some(cache) = self.types.get_mut(type_url) else { return };
        for (name, status) in &errors {
            let is_absence = status.code == Code::NotFound;
            match (kind, &mut cache.wildcard) {
                (CollectionKind::Names, _) => cache.named.fail(name, status, error_kind),
                (CollectionKind::Globs, _) if name.is_glob() || !is_absence => {
                    cache.globs.fail(name, status, error_kind)
                }
                (CollectionKind::Wildcard, Some(members)) if !is_absence => {
                    members.set_error(name, Some(status))
                }
                // The member's removal reports its absence.
                (CollectionKind::Wildcard | CollectionKind::Globs, _) => {}
            }
        }
        self.settle(type_url, now);
    }

    /// The server is heard: errors of unavailable names are over until they are reported again (DAT-7).
    /// Unknown names are waited for as at first. `only`: limits the call to this type.
    fn end_transient_errors(&mut self, index: StreamIndex, only: Option<&TypeUrl>, now: Time) {
        let Attachment::Streams(streams) = &self.attachment else { return };
        let mut touched = Vec::new();
        for (type_url, cache) in &mut self.types {
            if only.is_some_and(|only| only != type_url) {
                continue;
            }
            let unknown = match (streams.kind_of(index, type_url), &mut cache.wildcard) {
                (Some(CollectionKind::Names), _) => cache.named.end_transient_errors(),
                (Some(CollectionKind::Globs), _) => cache.globs.end_transient_errors(),
                (Some(CollectionKind::Wildcard), Some(members)) => {
                    members.end_transient_errors();
                    Vec::new()
                }
                (Some(CollectionKind::Wildcard) | None, _) => continue,
            };
            if !unknown.is_empty() {
                self.upkeep.asked(type_url, &unknown, now);
            }
            touched.push(type_url.clone());
        }
        for type_url in touched {
            self.settle(&type_url, now);
        }
    }

    /// The server refuses a type: its unknown names are unavailable for now (ERR-10).
    fn report_refused(&mut self, index: StreamIndex, type_url: &TypeUrl, text: &str, now: Time) {
        let Some(cache) = self.types.get(type_url) else { return };
        let unknown = cache.named.known().iter().filter(|(_, known)| matches!(known, Known::Unknown));
        let globs = cache.globs.unknown();
        let names = unknown.map(|(name, _)| name).chain(globs).cloned();
        let status = self.upkeep.error(Code::Unavailable, text);
        let errors = names.map(|name| (name, status.clone())).collect();
        self.put_errors(index, type_url, errors, ErrorKind::Unreachable, now);
    }

    /// Names that were asked for long enough ago, of an unreachable server: UNAVAILABLE, never NOT_FOUND
    /// (ERR-10). A reachable server answers in time or times out (TMR-1).
    pub(super) fn report_unreachable(&mut self, now: Time) {
        while let Some((type_url, mut names)) = self.upkeep.take_asked(now) {
            let Some(cache) = self.types.get(&type_url) else { continue };
            names.retain(|name| cache.is_unknown(name));
            let Some(kind) = names.first().map(CollectionKind::of) else { continue };
            let Attachment::Streams(streams) = &mut self.attachment else { return };
            let Some(index) = streams.placed(&type_url, kind) else { continue };
            let Some(machine) = streams.machine(index) else { continue };
            if machine.is_reached() {
                self.upkeep.asked(&type_url, &names, now);
                continue;
            }
            let reason = machine.last_error().map(ToString::to_string);
            let text = format!("cannot be reached ({})", reason.as_deref().unwrap_or("still connecting"));
            let status = self.upkeep.error(Code::Unavailable, &text);
            let errors = names.into_iter().map(|name| (name, status.clone())).collect();
            self.put_errors(index, &type_url, errors, ErrorKind::Unreachable, now);
        }
    }
}
