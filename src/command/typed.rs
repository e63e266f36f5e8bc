//! Answers of relays, as they came and as the types of the API read them.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The key that names the relay in the output.
const RELAY: &str = "relay";

/// An answer, or an item of a list. `-o json` shows the keys of newer relays, too, so the text of the relay
/// is kept.
#[derive(Clone, Debug)]
pub(super) struct Typed<T> {
    pub relay: String,
    /// The answer of the relay, with the key `relay`.
    pub json: Value,
    pub value: T,
}

impl<T: DeserializeOwned> Typed<T> {
    /// # Errors
    /// The answer lacks the key that identifies it, or has a value of another type than in the API.
    pub(super) fn new(json: Value, relay: &str) -> Result<Typed<T>, String> {
        let value = T::deserialize(&json)
            .map_err(|error| format!("answers otherwise than the API of this sluice: {error}"))?;
        Ok(Typed { relay: relay.to_owned(), json: with_relay(json, relay), value })
    }
}

/// The answers in JSON.
pub(super) fn jsons<T>(answers: &[Typed<T>]) -> Vec<&Value> {
    answers.iter().map(|answer| &answer.json).collect()
}

pub(super) fn with_relay(mut json: Value, label: &str) -> Value {
    if let Some(members) = json.as_object_mut() {
        members.insert(RELAY.to_owned(), Value::from(label));
    }
    json
}

/// An answer without its ages, which change all the time.
pub(super) fn timeless(value: &Value, is_age: fn(&str) -> bool) -> Value {
    match value {
        Value::Object(members) => {
            let lasting = members.iter().filter(|(key, _)| !is_age(key));
            Value::Object(
                lasting.map(|(key, value)| (key.clone(), timeless(value, is_age))).collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => items.iter().map(|item| timeless(item, is_age)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The ages of an item of a list.
pub(super) fn is_age(key: &str) -> bool {
    key.ends_with("seconds")
}

/// The ages of an answer besides lists, whose texts for people have ages, too.
pub(super) fn is_age_or_text(key: &str) -> bool {
    is_age(key) || key == "text"
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_admin_api::clients::Client;

    use super::*;

    fn read(json: Value) -> Result<Client<'static>, String> {
        Typed::new(json, "r1").map(|typed| typed.value)
    }

    /// ADR 87: a command meets relays of other versions.
    #[test]
    fn an_older_relay_lacks_keys_and_a_newer_one_has_more() {
        let older = json!({"id": 7, "types": [{"type": "a.Cluster"}, {"type": "a.Secret", "names": 2}]});
        let client = read(older).unwrap();
        let names: Vec<_> = client.types.iter().map(|of_type| of_type.names.names).collect();
        assert_eq!((client.id, &*client.node, client.peer, names), (7, "", None, vec![0, 2]));
        assert!(client.types.iter().all(|of_type| of_type.content.is_none() && of_type.why.is_none()));
        let newer = json!({"id": 7, "novel": {"a": 1}, "types": [{"type": "a.B", "state": "NOVEL", "has": null, "novel": 1}]});
        let typed = Typed::<Client>::new(newer, "r1").unwrap();
        assert_eq!((&*typed.value.types[0].state, typed.value.types[0].content.is_some()), ("NOVEL", true));
        assert_eq!((&typed.json["novel"]["a"], &typed.json["relay"]), (&json!(1), &json!("r1")));
    }

    #[test]
    fn an_answer_without_its_identity_is_refused() {
        let fault = read(json!({"node": "a"})).unwrap_err();
        assert!(fault.ends_with("missing field `id`"), "{fault}");
    }
}
