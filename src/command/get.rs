//! `sluice get`: its arguments.

use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use sluice_admin_api::parameters::{
    ChangesParameters, ClassesParameters, ClientsParameters, PageParameters, Parameters, ResourcesParameters,
    SourcesParameters,
};

use super::change::{self, Change};
use super::console::Console;
use super::list::view::{CHANGES, CLASSES, CLIENTS, REFUSED, RESOURCES, SOURCES, View};
use super::list::{self, List};
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::{RelayArguments, Show};

/// Lists of the API.
#[derive(Debug, Subcommand)]
pub enum Get {
    /// Clients, with a line for each type that they ask for.
    #[command(after_help = CLIENTS_HELP)]
    Clients {
        #[command(flatten)]
        filter: ClientFilter,
        #[command(flatten)]
        common: Common,
    },
    /// Published changes, the latest first, and their way to the clients.
    #[command(after_help = CHANGES_HELP)]
    Changes {
        /// Only the type: Cluster, or the full name of the message.
        #[arg(long = "type", value_name = "TYPE")]
        type_name: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// One change, with the words of clients that reject it.
    #[command(after_help = change::HELP)]
    Change(Change),
    /// Node classes in use.
    #[command(after_help = CLASSES_HELP)]
    Classes {
        /// Only classes with the text in a field, a rule or a server.
        #[arg(long = "q", value_name = "TEXT")]
        part: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Attachments to control planes, each with its cache.
    #[command(after_help = SOURCES_HELP)]
    Sources {
        /// Only sources at the server, as in the configuration.
        #[arg(long, value_name = "URI")]
        server: Option<String>,
        /// Only the type: Cluster, or the full name of the message.
        #[arg(long = "type", value_name = "TYPE")]
        type_name: Option<String>,
        /// Only sources in the state: connecting, connected, unanswered, ends_streams or backoff.
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Cached resources, without their content.
    #[command(after_help = RESOURCES_HELP)]
    Resources {
        /// Only the type: Cluster, or the full name of the message.
        #[arg(long = "type", value_name = "TYPE")]
        type_name: Option<String>,
        /// Only the resource with the name.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Only resources in the state: REQUESTED, DOES_NOT_EXIST, ACKED, NACKED, RECEIVED_ERROR or TIMEOUT.
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Clients for whose node class there was no room, the latest first.
    #[command(after_help = REFUSED_HELP)]
    Refused {
        #[command(flatten)]
        common: Common,
    },
}

/// The arguments of each list.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// At most the number of items from each relay.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: RelayArguments,
}

/// The filters of `/clients`.
#[derive(Args, Clone, Debug)]
pub struct ClientFilter {
    /// Only clients with the node id.
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Only the type: Cluster, or the full name of the message.
    #[arg(long = "type", value_name = "TYPE")]
    type_name: Option<String>,
    /// Only types in the state: SYNCED, STALE, ERROR or NOT_SENT.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only types in their state for the reason: unacked, rejected, held:order, ...
    #[arg(long, value_name = "WHY")]
    why: Option<String>,
    /// Only types that have not been in sync for the time.
    #[arg(long, value_name = "TIME")]
    behind_for: Option<String>,
    /// Only clients with the text in their node id, cluster or address.
    #[arg(long = "q", value_name = "TEXT")]
    part: Option<String>,
    /// Only types from the server.
    #[arg(long, value_name = "URI")]
    server: Option<String>,
    /// Only types of this node class.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Only clients of the listener.
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// The order: id, behind (the longest first) or opened (the latest first).
    #[arg(long, value_name = "ORDER")]
    sort: Option<String>,
}

const CHANGES_HELP: &str = "\
Columns:
  ID        the change; other commands take it
  TYPE      the resource type, by the last part of its name
  VERSION   the first digits of the content's version
  AGE       the time since it came from the control plane
  WANTED    the clients that were to get it
  ACKED     the clients that have it
  REJECTED  the clients that rejected it
  WAITING   the clients that have not answered
  P50, P99  the time until half of the clients, and 99 %, had it
  With -o wide: LAST (the slowest), SUPERSEDED (got a later change instead), SERVER, CLASS, SIZE

Examples:
  sluice get changes
  sluice get changes --type Cluster --limit 5 -o json";

const CLASSES_HELP: &str = "\
Columns:
  CLASS    the digest of the class
  CLIENTS  the number of its streams
  RULE     the rules of node_classes that chose it
  SERVERS  the control planes that serve it
  With -o wide: SHOWN AS (the node id that servers see)

Examples:
  sluice get classes
  sluice get classes -o json";

const CLIENTS_HELP: &str = "\
Columns:
  ID       the stream, by its number in the relay; other commands take it
  NODE     the node id that the client gave
  CLUSTER  the node cluster that the client gave
  TYPE     the resource type, by the last part of its name
  STATE    SYNCED: has everything; STALE: does not have the newest; ERROR: rejected the newest; NOT_SENT: nothing is known
  WHY      unacked: sent, no answer; held:rate: requests of the client wait in the relay; other held:…: news is not sent
           yet; rejected: the client's NACK
  FOR      how long it has been so
  With -o wide: HAS and SHOULD (versions), VIA (server), CLASS (node class), PEER (address), OPEN (age of the stream)

Examples:
  sluice get clients --state STALE -o wide
  sluice get clients --type Cluster -o name";

const SOURCES_HELP: &str = "\
Columns:
  SERVER     the control plane, as in the configuration
  LIST       the key of its server list
  CLASS      the node class of the clients served
  STATE      connected, connecting, unanswered, ends_streams or backoff
  FOR        how long it has been so
  STALE      how long the server has been unreachable; - while it is there
  TYPES      the number of subscribed types
  RESOURCES  the number of cached resources
  ERROR      why the last stream or attempt ended
  With -o wide: RESTORED (from a checkpoint), VARIANT, FAILURES (in a row), SHOWN AS (node id that the server sees)

Examples:
  sluice get sources
  sluice get sources --state backoff -o json";

const RESOURCES_HELP: &str = "\
Columns:
  TYPE     the resource type, by the last part of its name
  NAME     the resource
  STATE    ACKED, REQUESTED, DOES_NOT_EXIST, NACKED, RECEIVED_ERROR or TIMEOUT: the relay's answer to the control plane
  VERSION  the first digits of the content's version; equal content has equal versions on every relay
  SIZE     the size of the cached copy: content, type URL, name, and 64 bytes
  CHANGED  when the content last changed
  With -o wide: FROM (server), CLASS (node class), REJECTING (clients whose last answer for the type is a NACK), ERROR

Examples:
  sluice get resources --type Cluster
  sluice get resources --state DOES_NOT_EXIST -o name";

const REFUSED_HELP: &str = "\
Columns:
  NODE     the node id of the client
  CLUSTER  the node cluster of the client
  TYPE     the type that it asked for
  LIMIT    the key of the exceeded limit
  COUNT    how often it was refused
  LAST     how long ago the last time was
  With -o wide: STREAM and PEER of the last refusal

Examples:
  sluice get refused
  sluice get refused --limit 10 -o json";

impl ClientFilter {
    fn parameters(self) -> ClientsParameters {
        ClientsParameters {
            node: self.node,
            q: self.part,
            r#type: self.type_name,
            state: self.state,
            why: self.why,
            server: self.server,
            class: self.class,
            listener: self.listener,
            behind_for: self.behind_for,
            sort: self.sort,
            ..ClientsParameters::default()
        }
    }
}

pub(super) async fn run(get: Get, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    match get {
        Get::Clients { filter, common } => show(&CLIENTS, filter.parameters(), common, console).await,
        Get::Changes { type_name, common } => {
            let parameters = ChangesParameters { r#type: type_name, ..ChangesParameters::default() };
            show(&CHANGES, parameters, common, console).await
        }
        Get::Change(change) => change::run(change, console).await,
        Get::Classes { part, common } => {
            let parameters = ClassesParameters { q: part, ..ClassesParameters::default() };
            show(&CLASSES, parameters, common, console).await
        }
        Get::Sources { server, type_name, state, common } => {
            let of_page = SourcesParameters::default();
            let parameters = SourcesParameters { server, r#type: type_name, state, ..of_page };
            show(&SOURCES, parameters, common, console).await
        }
        Get::Resources { type_name, name, state, common } => {
            let of_page = ResourcesParameters::default();
            let parameters = ResourcesParameters { r#type: type_name, name, state, ..of_page };
            show(&RESOURCES, parameters, common, console).await
        }
        Get::Refused { common } => show(&REFUSED, PageParameters::default(), common, console).await,
    }
}

async fn show<T: DeserializeOwned>(
    view: &'static View<T>,
    parameters: impl Parameters,
    common: Common,
    console: &mut Console<'_>,
) -> Result<Outcome, Failure> {
    let Common { limit, show, reach } = common;
    let list = List {
        query: parameters.into_pairs(),
        limit: limit.map(|limit| limit as usize),
        ..List::of_all(view)
    };
    let relays = Relays::new(&reach).await?;
    list::show(&relays, &list, show, console).await
}
