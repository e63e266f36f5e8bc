//! The rejections of clients since the server last heard of some (`report_rejections`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use crate::driver::ground::registry::lock;
use crate::xds::TypeUrl;

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
}

impl Rejected {
    /// Notes the NACK of a client. True: nothing was noted before, and the task has to hear.
    pub fn add(&self, type_url: &TypeUrl, client: &str, words: &str) -> bool {
        let mut all = lock(&self.0);
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
        if let Some(of_type) = lock(&self.0).get_mut(type_url) {
            of_type.is_earlier = true;
        }
    }

    pub fn take(&self) -> BTreeMap<TypeUrl, Rejection> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl Rejection {
    /// The words for the server. `clients`: of the source. Some clients that rejected may have left since.
    pub fn words(&self, clients: usize) -> Words<'_> {
        Words { rejection: self, clients: clients.max(self.clients) }
    }
}

/// As `3 of 200 clients reject this: web-1: bad port`.
pub struct Words<'a> {
    rejection: &'a Rejection,
    clients: usize,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rejection { clients, first_client, first_words, is_earlier } = self.rejection;
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
}
