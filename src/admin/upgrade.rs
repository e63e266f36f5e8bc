//! `POST /upgrade`: a new process takes over the sockets and the state of this one (HND-2, HND-5).

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State as Shared};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use sluice_admin_api::parameters::UpgradeParameters;

use super::access::ListenerReach;
use super::entrance::AdminPeer;
use super::params::{Declined, flag, read};
use super::state::{Admin, NotUpgraded, UpgradeWish};

pub(super) async fn begin(
    Shared(admin): Shared<Admin>,
    peer: Option<Extension<Arc<AdminPeer>>>,
    uri: Uri,
) -> Result<Response, Declined> {
    let params: UpgradeParameters = read(&uri)?;
    let now = flag("now", params.now)?;
    let dry_run = flag("dry_run", params.dry_run)?;
    let binary = params.binary.map(PathBuf::from);
    if binary.is_some() {
        may_choose(&admin, peer.as_ref().map(|Extension(peer)| &**peer))?;
    }
    let upgraded = admin.process.upgrading.upgrade(UpgradeWish { now, dry_run, binary }).await;
    upgraded.map(|upgraded| Json(upgraded).into_response()).map_err(|refusal| {
        let status = match refusal {
            NotUpgraded::Conflict { .. } => StatusCode::CONFLICT,
            NotUpgraded::Failed(_) => StatusCode::BAD_GATEWAY,
        };
        Declined { status, reason: refusal.text() }
    })
}

/// An executable of the caller's choice runs as the user of the relay, so the caller must be that user
/// already, or root. Only a unix socket proves this.
fn may_choose(admin: &Admin, peer: Option<&AdminPeer>) -> Result<(), Declined> {
    let uid = peer.and_then(|peer| peer.uid);
    let is_owner = match admin.settings.get().access.reach {
        ListenerReach::Unix { owner } => uid.is_some_and(|uid| uid == 0 || uid == owner),
        ListenerReach::Loopback | ListenerReach::Network { .. } => false,
    };
    let text = "binary: only root and the user of the relay may choose it, over a unix socket; the key handover.binary \
                sets it for all";
    match is_owner {
        true => Ok(()),
        false => Err(Declined { status: StatusCode::FORBIDDEN, reason: text.to_owned() }),
    }
}
