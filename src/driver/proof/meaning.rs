//! The meaning of unequal bodies, on a thread that may be busy (PRF-14). Bodies reach no report.

use std::sync::Arc;

use sluice_json::redact::{Meaning as JsonMeaning, bears_secret, compare};
use sluice_proof::proof::{Meaning, Question, ResourcePair};

/// The meanings of the pairs of a question, in order. `ignored`: the paths that may differ (PRF-15).
pub(super) fn meanings(question: &Question, ignored: &[String]) -> Vec<Meaning> {
    let texts = |paths: Vec<String>| paths.into_iter().map(Arc::from).collect();
    let meaning = |pair: &ResourcePair| {
        let (class, shadow) = (&pair.class.body.value, &pair.shadow.body.value);
        let is_secret = |body| bears_secret(&question.type_url, body);
        if is_secret(class) || is_secret(shadow) {
            return Meaning::HasSecret;
        }
        match compare(&question.type_url, class, shadow, ignored) {
            JsonMeaning::Same { ignored } => Meaning::Equal { ignored: texts(ignored) },
            JsonMeaning::Differs { paths, ignored } => {
                Meaning::Differs { paths: texts(paths), ignored: texts(ignored) }
            }
            JsonMeaning::Unread => Meaning::Differs { paths: Vec::new(), ignored: Vec::new() },
        }
    };
    question.pairs.iter().map(meaning).collect()
}
