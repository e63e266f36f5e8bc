//! The facts of a cluster.

use super::keeper::FactKeeper;
use crate::kubernetes::{PodRegistry, RegistryNews};

pub(super) async fn follow(mut registry: PodRegistry, mut keeper: FactKeeper) {
    loop {
        match registry.next().await {
            RegistryNews::Facts(table) => keeper.learn("kubernetes", table).await,
            RegistryNews::Refused(pods) => keeper.tell_refused(pods),
            RegistryNews::Confirmed => keeper.confirm(),
            RegistryNews::Fault(reason) => keeper.tell("kubernetes", &reason),
        }
    }
}
