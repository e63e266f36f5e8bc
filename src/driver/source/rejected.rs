//! The rejections of clients since the server last heard of some (`report_rejections`).

use sluice_xds::TypeUrl;
use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;

/// Rejections by type, from streams to the source's task.
#[derive(Debug, Default)]
pub struct Rejected(Mutex<BTreeMap<TypeUrl, Rejection>>);

/// The rejections of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejection {
    clients: usize,
    first_client: Box<str>,
    first_words: Box<str>,
    /// The server has answered since.
    is_earlier: bool,
    /// The server could not be told so often.
    tries: u32,
}

/// About a minute. A server without an answer on its stream for longer has other troubles, which are told
/// elsewhere.
const TRIES_MAX: u32 = 6;

impl Rejected {
    /// Notes the NACK of a client. True: nothing was noted before, and the task has to hear.
    pub fn add(&self, type_url: &TypeUrl, client: &str, words: &str) -> bool {
        let mut all = self.0.lock();
        let is_new = all.is_empty();
        let of_type = all.entry(type_url.clone()).or_insert_with(|| Rejection {
            first_client: client.into(),
            first_words: words.into(),
            ..Rejection::default()
        });
        of_type.clients += 1;
        is_new
    }

    /// The server has sent another response of the type.
    pub fn answered(&self, type_url: &TypeUrl) {
        if let Some(of_type) = self.0.lock().get_mut(type_url) {
            of_type.is_earlier = true;
        }
    }

    /// Keeps a rejection that the server could not be told of. False: after so many tries, nobody is told.
    pub fn put_back(&self, type_url: TypeUrl, rejection: Rejection) -> bool {
        let tries = rejection.tries + 1;
        if tries == TRIES_MAX {
            return false;
        }
        let mut all = self.0.lock();
        let since = all.get(&type_url).map_or(0, |since| since.clients);
        let clients = rejection.clients + since;
        all.insert(type_url, Rejection { clients, tries, ..rejection });
        true
    }

    pub fn take(&self) -> BTreeMap<TypeUrl, Rejection> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Rejection {
    /// The words for the server. `clients`: of the source. Some clients that rejected may have left since.
    pub fn words(&self, clients: usize) -> RejectionWords<'_> {
        RejectionWords { rejection: self, clients: clients.max(self.clients) }
    }
}

/// As `3 of 200 clients reject this: web-1: bad port`.
pub struct RejectionWords<'a> {
    rejection: &'a Rejection,
    clients: usize,
}

impl fmt::Display for RejectionWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rejection { clients, first_client, first_words, is_earlier, .. } = self.rejection;
        let what = if *is_earlier { "an earlier response" } else { "this" };
        let verb = if *clients == 1 { "rejects" } else { "reject" };
        write!(f, "{clients} of {} clients {verb} {what}: ", self.clients)?;
        if !first_client.is_empty() {
            write!(f, "{first_client}: ")?;
        }
        f.write_str(first_words)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_words_name_the_first_client_and_count_all() {
        let (rejected, [lds, cds]) =
            (Rejected::default(), ["a.Listener", "a.Cluster"].map(TypeUrl::of_message));
        assert!(rejected.add(&lds, "web-1", "bad port"));
        assert!(!rejected.add(&lds, "web-2", "other words"));
        assert!(!rejected.add(&cds, "", "no such filter"));
        rejected.answered(&cds);
        let all = rejected.take();
        assert_eq!(all[&lds].words(200).to_string(), "2 of 200 clients reject this: web-1: bad port");
        assert_eq!(
            all[&cds].words(0).to_string(),
            "1 of 1 clients rejects an earlier response: no such filter"
        );
        assert!(rejected.take().is_empty());
        assert!(rejected.add(&lds, "web-1", "bad port"), "the task hears of the next");
    }

    /// While the stream to the server opens anew, there is nobody to tell.
    #[test]
    fn a_rejection_waits_for_a_server_that_can_hear() {
        let (rejected, lds) = (Rejected::default(), TypeUrl::of_message("a.Listener"));
        rejected.add(&lds, "web-1", "bad port");
        let of_lds = rejected.take().remove(&lds).unwrap();
        rejected.add(&lds, "web-2", "other words");
        assert!(rejected.put_back(lds.clone(), of_lds));
        let mut again = rejected.take().remove(&lds).unwrap();
        assert_eq!(again.words(9).to_string(), "2 of 9 clients reject this: web-1: bad port");
        let mut tries = 1;
        while rejected.put_back(lds.clone(), again) {
            again = rejected.take().remove(&lds).unwrap();
            tries += 1;
        }
        assert_eq!(tries, TRIES_MAX - 1);
        assert!(rejected.take().is_empty());
    }
}
