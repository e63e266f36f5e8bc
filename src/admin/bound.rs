//! Places for requests with a cost of time or memory (ADM-14), apart for reads, orders, live answers and
//! client status.
//!
//! A request without a place takes the place of the peer with the longest wait, and the connection of the
//! peer ends. So a place is refused only while all places work.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Extensions;
use axum::response::Response;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tracing::debug;

use super::turn::{GRACE, RequestTurn};

/// Concurrent requests for metrics and lists; further requests are answered with 503. Health and readiness
/// have no limit.
pub(super) const REQUESTS_MAX: usize = 8;

/// Concurrent orders. An operator, or a machine in the place of an operator, gives few at a time.
pub(super) const ORDERS_MAX: usize = 8;

/// A number of places.
#[derive(Clone, Debug)]
pub(super) struct RequestPlaces(Arc<Held>);

#[derive(Debug)]
struct Held {
    most: usize,
    turns: Mutex<Vec<Arc<RequestTurn>>>,
}

/// A place, until dropped.
#[derive(Debug)]
pub(super) struct RequestPlace {
    places: RequestPlaces,
    turn: Arc<RequestTurn>,
}

impl RequestPlaces {
    pub fn new(most: usize) -> RequestPlaces {
        RequestPlaces(Arc::new(Held { most, turns: Mutex::default() }))
    }

    /// A place for this request; `None` if all places are busy.
    pub fn take(&self, turn: &Arc<RequestTurn>) -> Option<RequestPlace> {
        let mut turns = self.0.turns.lock();
        if turns.len() >= self.0.most {
            let waits = turns.iter().enumerate();
            let waits = waits.filter_map(|(index, turn)| Some((turn.waits()?, Reverse(index))));
            let (_, Reverse(slowest)) = waits.max().filter(|(wait, _)| *wait >= GRACE)?;
            debug!("closed an admin connection: others need the place of an answer that it does not take");
            turns.remove(slowest).cut();
        }
        turns.push(turn.clone());
        Some(RequestPlace { places: self.clone(), turn: turn.clone() })
    }
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        // Another request may have taken the place.
        self.places.0.turns.lock().retain(|turn| !Arc::ptr_eq(turn, &self.turn));
    }
}

/// The turn of a request, which its connection has begun.
pub(super) fn turn_of(request: &Extensions) -> Arc<RequestTurn> {
    request.get::<Arc<RequestTurn>>().cloned().unwrap_or_default()
}

/// Holds a place until the reader has taken the last piece of the answer.
pub(super) fn held<P: Send + 'static>(answer: Response, place: P) -> Response {
    let place = Mutex::new(place);
    answer.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _held = &place;
            frame
        }))
    })
}
