//! Locators and constraints on the wire (TP2).

use bytes::Bytes;

use super::fields::{Fields, Malformed, Sink, put_bytes, put_element, put_message};
use sluice_xds::dynamic::CONSTRAINT_DEPTH;
use sluice_xds::{Constraint, Constraints, Parameters, ResourceName};

/// The maximum encoded size of the constraints of one variant, in bytes.
const CONSTRAINTS_BYTES: usize = 16 << 10;

/// Name and parameters of a `ResourceLocator`. If a key is repeated, the last entry counts, as in any
/// protobuf map.
pub(super) fn read_locator(message: &[u8]) -> Result<(&str, Parameters), Malformed> {
    let (mut name, mut parameters) = ("", Parameters::new());
    for field in Fields::of(message) {
        match field? {
            (1, payload) => name = payload.text()?,
            (2, payload) => {
                let (mut key, mut value) = ("", "");
                for field in Fields::of(payload.bytes()?) {
                    match field? {
                        (1, payload) => key = payload.text()?,
                        (2, payload) => value = payload.text()?,
                        _ => {}
                    }
                }
                parameters.insert(key.to_owned(), value.to_owned());
            }
            _ => {}
        }
    }
    Ok((name, parameters))
}

pub(super) fn put_locator(sink: &mut dyn Sink, number: u32, name: &str, parameters: &Parameters) {
    put_message(sink, number, |locator| {
        put_bytes(locator, 1, name.as_bytes());
        for (key, value) in parameters {
            put_message(locator, 2, |entry| {
                put_bytes(entry, 1, key.as_bytes());
                put_bytes(entry, 2, value.as_bytes());
            });
        }
    });
}

/// Writes a `ResourceName`.
pub(super) fn put_name(sink: &mut dyn Sink, number: u32, name: &ResourceName, constraints: &Constraints) {
    put_message(sink, number, |message| {
        put_bytes(message, 1, name.as_str().as_bytes());
        put_element(message, 2, constraints.encoded());
    });
}

/// Reads a `DynamicParameterConstraints` message. Constraints of an unknown kind are an error, because they
/// can't be matched.
pub(super) fn read_constraints(message: &[u8]) -> Result<Constraints, Malformed> {
    if message.len() > CONSTRAINTS_BYTES {
        let text = format!("constraints of {} bytes, the limit is {CONSTRAINTS_BYTES}", message.len());
        return Err(Malformed::new(text));
    }
    Ok(Constraints::new(read_condition(message, CONSTRAINT_DEPTH)?, Bytes::copy_from_slice(message)))
}

fn read_condition(message: &[u8], levels: usize) -> Result<Constraint, Malformed> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(Malformed::new(format!("constraints of more than {CONSTRAINT_DEPTH} levels")));
    };
    let mut condition = None;
    for field in Fields::of(message) {
        let (number, payload) = field?;
        condition = match number {
            1 => Some(read_single(payload.bytes()?)?),
            2 => Some(Constraint::Any(read_list(payload.bytes()?, levels)?)),
            3 => Some(Constraint::All(read_list(payload.bytes()?, levels)?)),
            4 => Some(Constraint::Not(Box::new(read_condition(payload.bytes()?, levels)?))),
            _ => condition,
        };
    }
    condition.ok_or_else(|| Malformed::new("constraints of an unknown kind"))
}

fn read_list(message: &[u8], levels: usize) -> Result<Vec<Constraint>, Malformed> {
    let mut list = Vec::new();
    for field in Fields::of(message) {
        if let (1, payload) = field? {
            list.push(read_condition(payload.bytes()?, levels)?);
        }
    }
    Ok(list)
}

fn read_single(message: &[u8]) -> Result<Constraint, Malformed> {
    let (mut key, mut constraint) = ("", None);
    for field in Fields::of(message) {
        match field? {
            (1, payload) => key = payload.text()?,
            (2, payload) => constraint = Some(Some(payload.text()?)),
            (3, _) => constraint = Some(None),
            _ => {}
        }
    }
    match constraint {
        Some(Some(value)) => Ok(Constraint::Equals(key.into(), value.into())),
        Some(None) => Ok(Constraint::Exists(key.into())),
        None => Err(Malformed::new("a constraint of an unknown kind on a key")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use prost::Message;

    use super::super::fields::build;
    use super::*;
    use sluice_proto::dynamic_parameter_constraints as kinds;

    fn single(key: &str, value: Option<&str>) -> sluice_proto::DynamicParameterConstraints {
        use kinds::single_constraint::{ConstraintType, Exists};
        let kind = value.map_or(ConstraintType::Exists(Exists {}), |v| ConstraintType::Value(v.to_owned()));
        let constraint = kinds::SingleConstraint { key: key.to_owned(), constraint_type: Some(kind) };
        of(kinds::Type::Constraint(constraint))
    }

    fn of(kind: kinds::Type) -> sluice_proto::DynamicParameterConstraints {
        sluice_proto::DynamicParameterConstraints { r#type: Some(kind) }
    }

    #[test]
    fn dyn_2_constraints_read_and_are_passed_on_as_they_came() {
        let list = |constraints: &[sluice_proto::DynamicParameterConstraints]| kinds::ConstraintList {
            constraints: constraints.to_vec(),
        };
        let not = of(kinds::Type::NotConstraints(Box::new(single("a", None))));
        let any = of(kinds::Type::OrConstraints(list(&[single("b", Some("1")), not])));
        let all = of(kinds::Type::AndConstraints(list(&[any, single("c", Some(""))])));
        let bytes = all.encode_to_vec();
        let read = read_constraints(&bytes).unwrap();
        assert_eq!(read.to_string(), "and(c=,or(!a,b=1))");
        assert_eq!(*read.encoded(), bytes);
        let written = build(0, |sink| put_name(sink, 8, &"x".into(), &read));
        let resource = sluice_proto::Resource::decode(written.as_slice()).unwrap();
        let expected =
            sluice_proto::ResourceName { name: "x".to_owned(), dynamic_parameter_constraints: Some(all) };
        assert_eq!(resource.resource_name, Some(expected));
    }

    #[test]
    fn constraints_that_cannot_be_matched_are_refused() {
        let mut deep = single("k", None);
        for _ in 1..CONSTRAINT_DEPTH {
            deep = of(kinds::Type::NotConstraints(Box::new(deep)));
        }
        assert!(read_constraints(&deep.encode_to_vec()).is_ok());
        let deeper = of(kinds::Type::NotConstraints(Box::new(deep)));
        let of_no_kind = kinds::SingleConstraint { key: "k".to_owned(), constraint_type: None };
        let long = single(&"k".repeat(CONSTRAINTS_BYTES), None);
        let unknown = of(kinds::Type::Constraint(of_no_kind));
        for refused in [deeper, unknown, long, sluice_proto::DynamicParameterConstraints::default()] {
            read_constraints(&refused.encode_to_vec()).unwrap_err();
        }
    }

    #[test]
    fn dyn_7_a_locator_reads_back() {
        let parameters =
            Parameters::from([("k".to_owned(), "v".to_owned()), ("l".to_owned(), String::new())]);
        let written = build(0, |sink| put_locator(sink, 7, "x", &parameters));
        let request = sluice_proto::DiscoveryRequest::decode(written.as_slice()).unwrap();
        let [locator] = request.resource_locators.as_slice() else { unreachable!("one was written") };
        assert_eq!(read_locator(&locator.encode_to_vec()), Ok(("x", parameters)));
    }
}
