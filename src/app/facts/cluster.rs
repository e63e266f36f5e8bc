//! The facts of a cluster.

use super::keeper::FactKeeper;
use crate::kubernetes::{Registry, Report};

pub(super) async fn follow(mut registry: Registry, mut keeper: FactKeeper) {
    loop {
        match registry.next().await {
            Report::Facts(table) => keeper.learn("kubernetes", table).await,
            Report::Refused(pods) => keeper.tell_refused(pods),
            Report::Confirmed => keeper.confirm(),
            Report::Fault(reason) => keeper.tell("kubernetes", &reason),
        }
    }
}
