//! The streams of a source to its servers.

use std::sync::atomic::Ordering;

use super::audience::Audience;
use super::surroundings::Surroundings;
use crate::driver::source::link::{Link, LinkEvent};
use crate::driver::source::report::SourceReport;
use sluice_engine::source::{Attachment, Source, StreamIndex};
use sluice_engine::upstream::Output;
use sluice_xds::{Node, TypeUrl};

/// The link to the servers, and the streams left to a successor of the process.
pub(super) struct Uplink {
    link: Link,
    /// At most a single stream of each index.
    withheld: Vec<(StreamIndex, Output)>,
}

impl Uplink {
    pub(super) fn new(link: Link) -> Uplink {
        Uplink { link, withheld: Vec::new() }
    }

    pub(super) async fn next(&mut self) -> LinkEvent {
        self.link.next().await
    }

    /// Shows another node to the server. Returns the bytes of the node in a request.
    pub(super) fn set_node(&mut self, node: &Node, around: &Surroundings) -> usize {
        self.link.set_node(&around.handle.server(0).attach, node);
        self.link.node_bytes()
    }

    /// Carries out an output of one stream's machine.
    pub(super) fn carry_out(
        &mut self,
        index: StreamIndex,
        output: Output,
        source: &Source,
        report: &mut SourceReport,
        audience: &Audience,
        around: &Surroundings,
    ) {
        let opens = matches!(output, Output::Open { .. } | Output::OpenNext { .. });
        if opens || output == Output::Close {
            self.withheld.retain(|(withheld, _)| *withheld != index);
        }
        // HND-3: the successor has the streams to the servers from now on.
        if opens && around.shared.process.is_succeeded.load(Ordering::Relaxed) {
            return self.withheld.push((index, output));
        }
        // An attempt given up in favour of the other server does not end the outage.
        if output == Output::Close && !is_lost(source, index) {
            report.closed(index, around.now());
        }
        let type_url = match source.attachment() {
            Attachment::Streams(streams) => streams.type_of(index),
            Attachment::Files(_) => None,
        };
        let number = match output {
            Output::Open { server, .. } | Output::OpenNext { server, .. } => {
                self.link.set_relays(&audience.relay_path(&around.shared.process.relay_id));
                server
            }
            _ => 0,
        };
        let server = around.handle.server(number);
        let metrics = || around.shared.metrics.of_server(&server.uri);
        self.link.carry_out(&server.attach, index, type_url, output, metrics);
    }

    /// Opens the streams of a successor of the process after the successor's death.
    pub(super) fn open_withheld(
        &mut self,
        source: &Source,
        report: &mut SourceReport,
        audience: &Audience,
        around: &Surroundings,
    ) {
        for (index, output) in std::mem::take(&mut self.withheld) {
            self.carry_out(index, output, source, report, audience, around);
        }
    }
}

/// Whether the stream's server is unreachable.
fn is_lost(source: &Source, index: StreamIndex) -> bool {
    let Attachment::Streams(streams) = source.attachment() else { return false };
    streams.machines().nth(index).is_some_and(|(_, machine)| machine.reach().is_lost())
}

/// The type of a lost stream, where each type has its own stream (ADR 18), and whether the server was
/// lost with the stream.
pub(super) fn lost_type(source: &Source, index: StreamIndex) -> Option<(TypeUrl, bool)> {
    let Attachment::Streams(streams) = source.attachment() else { return None };
    Some((streams.type_of(index)?.clone(), streams.reach().is_lost()))
}

/// The server of this stream serves from now on.
pub(super) fn serve_by(source: &mut Source, index: StreamIndex, around: &Surroundings) {
    let Attachment::Streams(streams) = source.attachment() else { return };
    let Some((_, machine)) = streams.machines().nth(index) else { return };
    let number = machine.server();
    if around.handle.serving.swap(number, Ordering::Relaxed) != number {
        source.set_server(around.handle.server(number).uri.clone());
    }
}
