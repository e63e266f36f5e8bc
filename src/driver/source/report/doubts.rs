//! Events of a server that is silent about names of a type (ADR 54).

use tracing::{debug, warn};

use super::Report;
use crate::telemetry::events::{Kind, Occurrence, tell};
use sluice_engine::upstream::Event;
use sluice_xds::{ResourceName, TypeUrl};

/// The maximum number of names in a log line or in a status. The rest is a count.
pub(super) const NAMES_MAX: usize = 10;

impl Report {
    pub(super) fn doubts(&self, event: &Event) {
        match event {
            Event::Silenced { type_url, names, is_cured } => self.silenced(type_url, names, *is_cured),
            Event::SilentAbout { type_url, name } => self.silent_about(type_url, name),
            Event::SpeaksOf { type_url, name } => self.speaks_of(type_url, name),
            _ => {}
        }
    }

    fn silenced(&self, type_url: &TypeUrl, names: &[ResourceName], is_cured: bool) {
        let (server, list, class) = (&self.server_uri, &self.list, &self.class.digest);
        let first = &names[..names.len().min(NAMES_MAX)];
        let count = names.len();
        let text = match is_cured {
            true => "the upstream is silent about a type while it is asked for more names",
            false => "the upstream is silent about a type, and does not answer for a part of its names",
        };
        let event = Occurrence::warn(Kind::UpstreamLost, text).of_type(type_url).count(count as u64);
        self.add(event.detail(format_args!("{first:?}")));
        let Some(suppressed) = self.allow("silent about a type") else { return };
        if is_cured {
            warn!(%server, %list, %class, %type_url, count, ?first, suppressed,
                "the upstream has answered nothing about a type since it was asked for more names, and answers for the \
                    others; requesting the doubtful names on separate streams from now on. Delta \
                    (AGGREGATED_DELTA_GRPC) has no such rule");
        } else {
            warn!(%server, %list, %class, %type_url, count, ?first, suppressed,
                "the upstream has answered nothing about a type since it was asked for more names, and does not answer \
                    for a part of its names either; the requests stay as they are. Delta \
                    (AGGREGATED_DELTA_GRPC) may have no such rule");
        }
    }

    fn silent_about(&self, type_url: &TypeUrl, name: &ResourceName) {
        let text = "the upstream answers no request with this name";
        self.add(Occurrence::warn(Kind::UpstreamLost, text).of_type(type_url).detail(name));
        if let Some(suppressed) = self.allow("silent about a name") {
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, %name, suppressed,
                "the upstream answers no request with this name; the name counts as not there, and is requested alone \
                    now and then");
        } else {
            debug!(server = %self.server_uri, list = %self.list, %type_url, %name, "the upstream answers no request \
                with this name");
        }
    }

    fn speaks_of(&self, type_url: &TypeUrl, name: &ResourceName) {
        tell!(self, info(UpstreamBack, "the upstream answers requests with this name again").of_type(type_url).detail(name);
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, %name }
            = "the upstream answers requests with this name; requesting the name together with the others");
    }
}
