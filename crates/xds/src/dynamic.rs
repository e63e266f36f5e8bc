//! Dynamic parameters (TP2): a client states parameters beside a name; a server states for which parameters a
//! variant of a resource is meant.
//!
//! Inside the relay, a name with parameters is a name of its own (DYN-7), and so is a variant of a resource
//! (DYN-1). Each of the two ends with a Unicode noncharacter. The relay refuses names from peers with such an
//! ending.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};

use bytes::Bytes;

use super::ResourceName;

/// The parameters of one subscription, by key.
pub type Parameters = BTreeMap<String, String>;

/// Ends a name with parameters, and separates the name from the parameters.
const LOCATED: char = '\u{fdd0}';

/// Ends the name of a variant, and separates the name from the constraints.
const VARIANT: char = '\u{fdd1}';

/// The maximum nesting of constraints.
pub const CONSTRAINT_DEPTH: usize = 16;

/// A condition on parameters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Constraint {
    /// A parameter with this key exists.
    Exists(Box<str>),
    /// The parameter with this key has this value.
    Equals(Box<str>, Box<str>),
    /// At least one holds; false for an empty list.
    Any(Vec<Constraint>),
    /// All hold; true for an empty list.
    All(Vec<Constraint>),
    Not(Box<Constraint>),
}

impl Constraint {
    /// Whether the condition holds for these parameters. Parameters not mentioned are irrelevant. A missing
    /// key has no value: a condition on it is false, and the negation true (DYN-3).
    pub fn matches(&self, parameters: &Parameters) -> bool {
        match self {
            Constraint::Exists(key) => parameters.contains_key(&**key),
            Constraint::Equals(key, value) => {
                parameters.get(&**key).is_some_and(|parameter| **parameter == **value)
            }
            Constraint::Any(list) => list.iter().any(|constraint| constraint.matches(parameters)),
            Constraint::All(list) => list.iter().all(|constraint| constraint.matches(parameters)),
            Constraint::Not(constraint) => !constraint.matches(parameters),
        }
    }
}

/// Conditions that differ only in the order of their parts get the same spelling.
impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, word: &str, list: &[Constraint]| {
            let mut parts: Vec<_> = list.iter().map(Constraint::to_string).collect();
            parts.sort_unstable();
            parts.dedup();
            write!(f, "{word}({})", parts.join(","))
        };
        match self {
            Constraint::Exists(key) => f.write_str(&escaped(key)),
            Constraint::Equals(key, value) => write!(f, "{}={}", escaped(key), escaped(value)),
            Constraint::Any(any) => list(f, "or", any),
            Constraint::All(all) => list(f, "and", all),
            Constraint::Not(constraint) => write!(f, "!{constraint}"),
        }
    }
}

/// The clients that a variant is meant for: the condition, and the bytes as received, which are forwarded
/// (DYN-2). Equality is equality of the conditions.
#[derive(Clone, Debug)]
pub struct Constraints {
    condition: Constraint,
    text: Box<str>,
    encoded: Bytes,
}

impl Constraints {
    /// `encoded` is the `DynamicParameterConstraints` message that contained the condition.
    pub fn new(condition: Constraint, encoded: Bytes) -> Constraints {
        let text = condition.to_string().into();
        Constraints { condition, text, encoded }
    }

    pub fn matches(&self, parameters: &Parameters) -> bool {
        self.condition.matches(parameters)
    }

    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }
}

impl fmt::Display for Constraints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Constraints {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Constraints {}

impl PartialOrd for Constraints {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Constraints {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Constraints {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl ResourceName {
    /// The internal name of a locator. Without parameters, the plain name (DYN-8).
    pub fn located(name: &str, parameters: &Parameters) -> ResourceName {
        if parameters.is_empty() {
            return ResourceName::new(name);
        }
        let pairs: Vec<_> =
            parameters.iter().map(|(key, value)| format!("{}={}", escaped(key), escaped(value))).collect();
        ResourceName::from(format!("{name}{LOCATED}{}{LOCATED}", pairs.join("&")))
    }

    /// A lower bound in name order for all names that add parameters to `plain`. No other name sorts between
    /// the bound and these names.
    pub fn first_located(plain: &ResourceName) -> ResourceName {
        ResourceName::from(format!("{plain}{LOCATED}"))
    }

    /// Whether the name has parameters.
    pub fn is_located(&self) -> bool {
        self.as_str().ends_with(LOCATED)
    }

    /// The plain name and the parameters; `None` for a name without parameters.
    pub fn parameters(&self) -> Option<(&str, Parameters)> {
        let (name, parameters) = self.as_str().strip_suffix(LOCATED)?.rsplit_once(LOCATED)?;
        let pairs = parameters.split('&').filter_map(|pair| pair.split_once('='));
        Some((name, pairs.map(|(key, value)| (unescaped(key), unescaped(value))).collect()))
    }

    /// `name` with the parameters of `self`; if `self` has none, just `name`.
    #[must_use]
    pub fn beside(&self, name: &ResourceName) -> ResourceName {
        match self.parameters() {
            Some((_, parameters)) => ResourceName::located(name.as_str(), &parameters),
            None => name.clone(),
        }
    }

    /// The name of the variant with these constraints.
    #[must_use]
    pub fn variant(&self, constraints: &Constraints) -> ResourceName {
        ResourceName::from(format!("{self}{VARIANT}{constraints}{VARIANT}"))
    }

    /// Whether the name is that of a variant with constraints.
    pub fn is_variant(&self) -> bool {
        self.as_str().ends_with(VARIANT)
    }

    /// The name without parameters and constraints.
    pub fn plain(&self) -> &str {
        let strip = |mark: char| Some(self.as_str().strip_suffix(mark)?.rsplit_once(mark)?.0);
        strip(LOCATED).or_else(|| strip(VARIANT)).unwrap_or(self.as_str())
    }
}

/// Whether a name from a peer has an ending that is reserved for the relay's internal names.
pub fn is_reserved(name: &str) -> bool {
    name.ends_with([LOCATED, VARIANT])
}

/// The characters with a meaning in the spellings of this module.
fn is_special(character: char) -> bool {
    matches!(character, '%' | '&' | '=' | '(' | ')' | ',' | '!' | LOCATED | VARIANT)
}

fn escaped(text: &str) -> String {
    let mut spelled = String::with_capacity(text.len());
    for character in text.chars() {
        if is_special(character) {
            // Writing to a string does not fail.
            let _ = write!(spelled, "%{:x};", u32::from(character));
        } else {
            spelled.push(character);
        }
    }
    spelled
}

fn unescaped(spelled: &str) -> String {
    let mut parts = spelled.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some((code, rest)) = part.split_once(';') else { continue };
        text.extend(u32::from_str_radix(code, 16).ok().and_then(char::from_u32));
        text.push_str(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> Parameters {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn exists(key: &str) -> Constraint {
        Constraint::Exists(key.into())
    }

    fn equals(key: &str, value: &str) -> Constraint {
        Constraint::Equals(key.into(), value.into())
    }

    fn not(constraint: Constraint) -> Constraint {
        Constraint::Not(Box::new(constraint))
    }

    #[test]
    fn dyn_3_what_is_not_mentioned_is_irrelevant_and_what_is_absent_is_false() {
        let (none, prod) = (parameters(&[]), parameters(&[("env", "prod"), ("zone", "a")]));
        for constraint in [equals("env", "prod"), exists("env")] {
            assert!(constraint.matches(&prod) && !constraint.matches(&none));
            assert!(!not(constraint.clone()).matches(&prod) && not(constraint).matches(&none));
        }
        assert!(!equals("env", "test").matches(&prod));
        assert!(!exists("ENV").matches(&prod), "keys are compared as they are");
        assert!(not(equals("env", "")).matches(&none), "an absent key has no value, not an empty one");
        assert!(Constraint::All(Vec::new()).matches(&none) && !Constraint::Any(Vec::new()).matches(&none));
    }

    /// Every constraint of a small world under every set of parameters.
    #[test]
    fn dyn_2_the_laws_of_logic_hold() {
        let atoms = [exists("a"), equals("a", "1"), equals("a", "2"), exists("b"), equals("b", "1")];
        let values = [None, Some("1"), Some("2"), Some("3")];
        let worlds = values.iter().flat_map(|a| values.iter().map(move |b| (a, b))).map(|(a, b)| {
            let pairs = [("a", a), ("b", b)];
            let pairs = pairs.iter().filter_map(|(key, value)| Some((*key, (**value)?)));
            parameters(&pairs.collect::<Vec<_>>())
        });
        for world in worlds {
            let holds = |constraint: &Constraint| constraint.matches(&world);
            for one in &atoms {
                assert_eq!(holds(&not(not(one.clone()))), holds(one), "double negation");
                for other in &atoms {
                    let pair = || vec![one.clone(), other.clone()];
                    let (any, all) = (Constraint::Any(pair()), Constraint::All(pair()));
                    assert_eq!(holds(&any), holds(one) || holds(other));
                    assert_eq!(holds(&all), holds(one) && holds(other));
                    let negated = || pair().into_iter().map(not).collect();
                    assert_eq!(holds(&not(any)), holds(&Constraint::All(negated())), "De Morgan");
                    assert_eq!(holds(&not(all)), holds(&Constraint::Any(negated())), "De Morgan");
                }
            }
        }
    }

    #[test]
    fn dyn_1_constraints_that_mean_the_same_list_are_the_same_key() {
        let any_of = |list: &[Constraint]| Constraints::new(Constraint::Any(list.to_vec()), Bytes::new());
        let (a, b) = (equals("k", "1"), exists("k"));
        assert_eq!(any_of(&[a.clone(), b.clone()]), any_of(&[b.clone(), a.clone(), b.clone()]));
        assert_ne!(any_of(std::slice::from_ref(&a)), any_of(std::slice::from_ref(&b)));
        assert_eq!(any_of(&[not(a), b]).to_string(), "or(!k=1,k)");
        let texts = [exists("a=1"), equals("a", "1"), exists("!a"), not(exists("a")), exists("or(a)")];
        let texts: std::collections::BTreeSet<_> = texts.iter().map(Constraint::to_string).collect();
        assert_eq!(texts.len(), 5, "{texts:?}");
    }

    #[test]
    fn dyn_7_a_name_with_parameters_reads_back() {
        let awkward = format!("a&b=c%25;{LOCATED}");
        for pairs in [&[("env", "prod")][..], &[("k", ""), ("", "v")], &[(&awkward, &awkward), ("z", "1")]] {
            let given = parameters(pairs);
            let name = ResourceName::located("xdstp://a/T/x?c=d", &given);
            assert!(name.is_located() && !name.is_variant() && is_reserved(name.as_str()));
            assert_eq!(name.parameters(), Some(("xdstp://a/T/x?c=d", given)));
            assert_eq!(name.plain(), "xdstp://a/T/x?c=d");
        }
        let odd = format!("x{LOCATED}y");
        assert_eq!(ResourceName::located(&odd, &parameters(&[("k", "v")])).plain(), odd);
        let one = ResourceName::located("x", &parameters(&[("k", "v")]));
        assert_ne!(one, ResourceName::located("x", &parameters(&[("k", "w")])));
        assert_eq!(one.beside(&"y".into()), ResourceName::located("y", &parameters(&[("k", "v")])));
    }

    #[test]
    fn nam_6_dyn_7_the_name_before_the_parameters_has_a_canonical_spelling() {
        let given = parameters(&[("k", "v")]);
        let located = |name: &str| ResourceName::located(name, &given);
        let (sorted, turned) = (located("xdstp://a/T/f/x?a=1&b=2"), located("xdstp://a/T/f/x?b=2&a=1"));
        assert_eq!(turned.canonical("T"), Ok(Some(sorted.clone())));
        assert_eq!(sorted.canonical("T"), Ok(None));
        turned.canonical("U").unwrap_err();
        assert_eq!((sorted.authority(), sorted.is_xdstp(), sorted.glob()), (Some("a"), true, None));
    }

    #[test]
    fn dyn_8_without_parameters_it_is_the_plain_name() {
        let name = ResourceName::located("x", &Parameters::new());
        assert_eq!((name.as_str(), name.is_located(), name.parameters()), ("x", false, None));
        assert_eq!((name.plain(), name.is_variant(), is_reserved("x")), ("x", false, false));
        assert_eq!(name.beside(&"y".into()).as_str(), "y");
    }
}
