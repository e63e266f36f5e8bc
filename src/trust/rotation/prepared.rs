//! Files that were read and can be used, before anybody watches them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Clock, Files, FilesInForce, FollowedFiles, Rotation, Turn, Watched, WatchedPlace};
use crate::telemetry::metrics::TlsMetrics;
use crate::trust::contents::Stamps;
use sluice_setting::InForce;

/// A place with usable files that nobody watches yet.
pub struct Prepared<T> {
    pub(super) place: WatchedPlace<T>,
    pub(super) first: T,
    pub(super) stamps: Stamps,
    pub(super) digest: [u8; 32],
    pub(super) clock: Arc<Clock>,
}

impl<T: FilesInForce> Prepared<T> {
    /// Puts the files in force, and watches them from then on. Must be called within a tokio runtime.
    pub fn watch(self, metrics: TlsMetrics) -> Watched<T> {
        let (in_force, judged, turn) = (InForce::new(self.first), watch::Sender::new(0), Turn::default());
        let first = Files { place: self.place, stamps: self.stamps, digest: self.digest };
        let followed = FollowedFiles { in_force, judged, turn, number: 0 };
        let task = Rotation::start(first, followed.clone(), metrics, self.clock);
        let FollowedFiles { in_force, judged, turn, .. } = followed;
        Watched { in_force, judged, turn, task: Arc::new(Mutex::new(task)) }
    }

    /// Puts the files in force in place of the files of `watched`, for all who hold it. Open connections are
    /// judged again as after a rotation (CRT-8). Must be called within a tokio runtime.
    pub fn replace(self, watched: &Watched<T>, metrics: TlsMetrics) {
        let (in_force, judged, turn) =
            (watched.in_force.clone(), watched.judged.clone(), watched.turn.clone());
        let judges_like = self.first.judges_like(&in_force.get());
        let now = (self.clock)();
        let stays = self.first.expiries(now);
        for gone in in_force.get().expiries(now) {
            if stays.iter().all(|expiry| expiry.part != gone.part) {
                metrics.forget(&format!("{}.{}", self.place.name, gone.part));
            }
        }
        let number = {
            let mut number = turn.lock();
            *number += 1;
            in_force.publish(self.first);
            *number
        };
        let first = Files { place: self.place, stamps: self.stamps, digest: self.digest };
        let followed = FollowedFiles { in_force, judged, turn, number };
        *watched.task.lock() = Rotation::start(first, followed, metrics, self.clock);
        if !judges_like {
            watched.judged.send_modify(|count| *count += 1);
        }
    }
}
