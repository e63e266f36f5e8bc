//! `sluice load`: the load that clients report (LRS-25).

use clap::Args;
use sluice_admin_api::parameters::{LoadParameters, Parameters};

use super::arguments::{RelayArguments, Show};
use super::console::Console;
use super::list::view::{CLASS_LOADS, LOAD};
use super::list::{self, List};
use super::outcome::{Failure, Outcome};
use super::relays::Relays;

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct LoadArguments {
    /// Only the cluster with the name.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Only the control plane, as in the configuration.
    #[arg(long, value_name = "URI")]
    server: Option<String>,
    /// Only the class: its digest, or the beginning of it.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// At most so many rows of each relay.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Show the node classes, and what the control planes were sent of each.
    #[arg(long, conflicts_with_all = ["cluster", "server", "class", "limit"])]
    classes: bool,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: RelayArguments,
}

const HELP: &str = "\
Needs `lrs: aggregate` or `lrs: local` at a control plane in the configuration of the relay.

Columns of the rows, the greatest share of errors first:
  CLUSTER      the cluster, as clients name it
  LOCALITY     region/zone/sub_zone of its endpoints
  CLASS        the node class of the clients
  REQUESTS     the finished requests since SINCE
  ERRORS       the share of the errors
  ADMITTED     the requests and errors of clients that an open step of a plan has given the push by their seats
  OTHERS       those of clients without the push
  IN PROGRESS  the requests without an end yet
  With -o wide: UNJUDGED (those of relays, and of clients that a label has given the push), LOAD (its number in --classes), PRIORITY, SERVICE, SERVER, SINCE

Columns of --classes:
  CLASS        the digest of the class
  SERVER       the control plane
  STATE        of the stream to it: idle, waiting, opening, open, ending or ended; or local: nothing is sent
  REPORTERS    the clients that report
  WANTED       the clusters that the control plane wants, and how often
  READ         the finished requests in reports of clients
  DELIVERED    those of them that the control plane has
  IN DOUBT     those that it may have: the stream ended before it could be known
  LEFT OUT     those without a place in the table (`limits.load_rows`)
  With -o wide: LOAD, PENDING (for the next report), UNWANTED (in clusters that it does not want), ROWS, ERROR

Examples:
  sluice load
  sluice load --cluster checkout
  sluice load --classes -o wide";

pub(super) async fn run(order: LoadArguments, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let relays = Relays::new(&order.reach).await?;
    if order.classes {
        return list::show(&relays, &List::of_all(&CLASS_LOADS), order.show, console).await;
    }
    let filter = LoadParameters {
        cluster: order.cluster,
        server: order.server,
        class: order.class,
        sort: Some("errors".to_owned()),
        ..LoadParameters::default()
    };
    let list =
        List { view: &LOAD, value: None, query: filter.into_pairs(), limit: Some(order.limit as usize) };
    list::show(&relays, &list, order.show, console).await
}
