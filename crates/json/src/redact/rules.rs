//! The fields to hide: those that Envoy marks, those of our list, and those with the name of a secret
//! (ADM-12).

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};

use sluice_text::secrets;

/// Envoy's mark of a field (`bool`).
const MARK: &str = "udpa.annotations.sensitive";

/// Inline content of files: certificates, keys, passwords, scripts, bodies.
const INLINE: [&str; 2] =
    ["envoy.config.core.v3.DataSource.inline_string", "envoy.config.core.v3.DataSource.inline_bytes"];

/// Packages of extensions that run code. Their configuration is as opaque as the code.
const CODE: [&str; 4] = ["lua", "wasm", "dynamic_modules", "golang"];

/// Names of texts in messages, where many fields end in `_key` without being one.
const FIELD_NAMES: [&str; 6] =
    ["json_key", "private_key", "secret_access_key", "api_key", "access_key", "access_key_id"];

/// Fields with the name of a header, a parameter or an entry whose other fields have the value.
const KEY_FIELDS: [&str; 4] = ["key", "name", "header_name", "header"];

const VALUE_FIELDS: [&str; 6] =
    ["value", "raw_value", "string_value", "string_match", "exact_match", "header_value"];

/// The rules for the types of a pool.
pub(super) struct Rules {
    /// Full names of fields that are always hidden.
    hidden: HashSet<String>,
    /// Full names of fields for secrets: marked, or with the name of one.
    secret: HashSet<String>,
    /// Full names of messages with a key and a value, and the name of the key's field.
    keyed: HashMap<String, &'static str>,
}

impl Rules {
    /// The rules for the embedded descriptors.
    pub fn of(pool: &DescriptorPool) -> &'static Rules {
        static RULES: OnceLock<Rules> = OnceLock::new();
        RULES.get_or_init(|| Rules::build(pool))
    }

    fn build(pool: &DescriptorPool) -> Rules {
        let mark = pool.get_extension_by_name(MARK);
        let is_marked = |field: &FieldDescriptor| {
            let options = field.options();
            mark.as_ref().is_some_and(|mark| options.get_extension(mark).as_bool() == Some(true))
        };
        let (mut hidden, mut secret, mut keyed) = (HashSet::new(), HashSet::new(), HashMap::new());
        for message in pool.all_messages() {
            if let Some(key) = key_of(&message) {
                keyed.insert(message.full_name().to_owned(), key);
            }
            for field in message.fields() {
                if is_marked(&field) || is_named(&field) {
                    secret.insert(field.full_name().to_owned());
                }
                if is_marked(&field) || is_listed(&message, &field) {
                    hidden.insert(field.full_name().to_owned());
                }
            }
        }
        Rules { hidden, secret, keyed }
    }

    /// Whether the field is for a secret.
    pub fn is_secret(&self, field: &FieldDescriptor) -> bool {
        self.secret.contains(field.full_name())
    }

    /// Whether nobody sees this field of the message.
    pub fn hides(
        &self,
        message: &DynamicMessage,
        descriptor: &MessageDescriptor,
        field: &FieldDescriptor,
    ) -> bool {
        if self.hidden.contains(field.full_name()) {
            return true;
        }
        let Some(key) = self.keyed.get(descriptor.full_name()) else { return false };
        let name = message.get_field_by_name(key);
        field.name() != *key && name.as_deref().and_then(Value::as_str).is_some_and(secrets::is_name)
    }

    #[cfg(test)]
    pub fn hidden(&self) -> &HashSet<String> {
        &self.hidden
    }
}

fn key_of(message: &MessageDescriptor) -> Option<&'static str> {
    let has_text =
        |name: &str| message.get_field_by_name(name).is_some_and(|field| field.kind() == Kind::String);
    let has_value = VALUE_FIELDS.iter().any(|name| message.get_field_by_name(name).is_some());
    if !has_value || message.is_map_entry() {
        return None;
    }
    KEY_FIELDS.iter().copied().find(|name| has_text(name))
}

/// Whether a text has the name of a secret.
fn is_named(field: &FieldDescriptor) -> bool {
    let name = field.name();
    let is_text = match field.kind() {
        Kind::String | Kind::Bytes => true,
        Kind::Message(message) => {
            matches!(message.full_name(), "google.protobuf.StringValue" | "google.protobuf.BytesValue")
        }
        _ => false,
    };
    is_text
        && (FIELD_NAMES.contains(&name)
            || (secrets::is_name(name) && !name.trim_end_matches('s').ends_with("_key")))
}

fn is_listed(message: &MessageDescriptor, field: &FieldDescriptor) -> bool {
    INLINE.contains(&field.full_name()) || is_named(field) || is_code(message, field, &field.kind())
}

/// Code, and the configuration that code reads.
fn is_code(message: &MessageDescriptor, field: &FieldDescriptor, kind: &Kind) -> bool {
    let is_extension = message.package_name().split('.').any(|part| CODE.contains(&part));
    let is_opaque = match kind {
        Kind::Message(opaque) => {
            matches!(opaque.full_name(), "google.protobuf.Any" | "google.protobuf.Struct")
        }
        _ => matches!(field.name(), "inline_code" | "configuration"),
    };
    is_extension && (is_opaque || field.name() == "key_values")
}
