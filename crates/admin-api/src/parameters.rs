//! The parameters of each endpoint. The relay reads the values; a command fills in the fields.
//!
//! A value is text here: the relay knows the words of its states and kinds, and names those that it allows.

/// The parameters of an endpoint.
pub trait Parameters: Default {
    /// In the order in which a refusal of another key names them.
    const KEYS: &'static [&'static str];

    /// The place of a value; `None` for an unknown key.
    fn value(&mut self, key: &str) -> Option<&mut Option<String>>;

    /// The keys with a value.
    fn into_pairs(self) -> Vec<(&'static str, String)>;

    /// # Errors
    /// The first unknown or repeated key.
    fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, BadKey> {
        let mut parameters = Self::default();
        for (key, value) in pairs {
            match parameters.value(&key) {
                None => return Err(BadKey::Unknown(key)),
                Some(Some(_)) => return Err(BadKey::Twice(key)),
                Some(place) => *place = Some(value),
            }
        }
        Ok(parameters)
    }
}

/// A key forbidden in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadKey {
    Unknown(String),
    Twice(String),
}

/// The key of a field: without the mark of Rust's own words.
const fn key(field: &'static str) -> &'static str {
    let [b'r', b'#', bytes @ ..] = field.as_bytes() else { return field };
    match std::str::from_utf8(bytes) {
        Ok(key) => key,
        Err(_) => field,
    }
}

macro_rules! parameters {
    ($($(#[$about:meta])* $set:ident { $($field:ident),* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $set {
            $(pub $field: Option<String>,)*
        }

        impl Parameters for $set {
            const KEYS: &'static [&'static str] = &[$(key(stringify!($field))),*];

            fn value(&mut self, _key: &str) -> Option<&mut Option<String>> {
                $(if _key == key(stringify!($field)) {
                    return Some(&mut self.$field);
                })*
                None
            }

            fn into_pairs(self) -> Vec<(&'static str, String)> {
                let pairs: Vec<(&'static str, Option<String>)> =
                    vec![$((key(stringify!($field)), self.$field)),*];
                pairs.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
            }
        }
    )*};
}

parameters! {
    /// An endpoint without parameters.
    NoParameters {}
    /// A list without filters.
    PageParameters { after, limit }
    OverviewParameters { counted }
    ClientsParameters { node, q, r#type, state, why, server, class, listener, behind_for, sort, after, limit }
    ClientParameters { r#type, names, after, limit }
    DiffParameters { to, r#type, name, format, any_class }
    /// A type, or one resource of it.
    NameParameters { r#type, name }
    WhoParameters { r#type, name, version, after, limit }
    ClassesParameters { q, after, limit }
    ProveParameters { class, all, streams, replicas }
    LearnParameters { server, types, r#for, streams, per_minute, check }
    SplitParameters { class, by }
    JoinParameters { class }
    LoadParameters { cluster, server, class, sort, after, limit }
    SourcesParameters { server, r#type, state, shadows, after, limit }
    ResourcesParameters { r#type, name, state, after, limit }
    ContentParameters { source, format }
    EventsParameters { kind, severity, after, limit }
    TailParameters { client, node, r#type }
    ChangesParameters { r#type, source, after, limit }
    DrainParameters { over, after, dry_run }
    UpgradeParameters { now, dry_run, binary }
    ConfigParameters { generation, against }
    ReloadParameters { dry_run, yes }
    RollbackParameters { to, dry_run, yes }
    LogParameters { level, r#for }
    DeletionsParameters { server, r#type }
    /// All commands to a plan. Each takes some of them.
    PlanParameters { push, step, all, class, condemn, to, until, r#for, here, r#as, reason }
    /// `pause`, `resume` and `rollback`.
    PushParameters { push, here, r#as, reason }
    PromoteParameters { push, step, all, here, r#as, reason }
    AbortParameters { push, condemn, here, r#as, reason }
    BarParameters { push, class, here, r#as, reason }
    PinParameters { to, until, r#for, here, r#as, reason }
    /// `unpin` and `/unfreeze`.
    UnpinParameters { here, r#as, reason }
    FreezeParameters { r#for, here, r#as, reason }
    /// The page of a client.
    ClientPageParameters { r#type, after, limit }
    /// The page of a client's requests and responses.
    TailPageParameters { r#type }
    /// The page of the node classes.
    ClassesPageParameters { q, limit }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<PinParameters, BadKey> {
        PinParameters::from_pairs(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn a_key_is_known_and_comes_once() {
        let pin = read(&[("as", "jo"), ("for", "2h"), ("to", "")]).unwrap();
        assert_eq!(
            (pin.r#as.as_deref(), pin.r#for.as_deref(), pin.to.as_deref()),
            (Some("jo"), Some("2h"), Some(""))
        );
        let pairs = [("to", ""), ("for", "2h"), ("as", "jo")].map(|(key, value)| (key, value.to_owned()));
        assert_eq!(pin.into_pairs(), pairs);
        assert_eq!(read(&[("to", "1"), ("r#as", "jo")]), Err(BadKey::Unknown("r#as".to_owned())));
        assert_eq!(read(&[("to", "1"), ("to", "1")]), Err(BadKey::Twice("to".to_owned())));
        assert_eq!(PinParameters::KEYS, ["to", "until", "for", "here", "as", "reason"]);
    }
}
