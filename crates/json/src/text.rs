//! Protobuf's text format (`.pb_text`), with payloads spelled out under their types in brackets.

use miette::Diagnostic;
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};

use super::{ANY, JsonError, RESOURCE, RESPONSE, any_message, canonical, message, pool};
use sluice_proto::Any;
use sluice_wire::upstream::{decode_file_resource, decode_file_response};
use sluice_xds::SotwResponse;

/// The maximum nesting of messages. The parser itself has no limit.
const DEPTH_MAX: usize = 100;

/// Reads a file in text format: a `DiscoveryResponse`, or the `Resource` of a list collection (FIL-5).
pub fn parse_text(text: &str) -> Result<SotwResponse, JsonError> {
    check_depth(text)?;
    match encode(RESPONSE, text) {
        Ok(response) => Ok(decode_file_response(response.into())?),
        // Most files are responses. If a file is neither, report the error from reading it as a response.
        Err(error) => match encode(RESOURCE, text) {
            Ok(resource) => Ok(decode_file_resource(&resource)?),
            Err(_) => Err(error),
        },
    }
}

fn encode(name: &str, text: &str) -> Result<Vec<u8>, JsonError> {
    let parsed = DynamicMessage::parse_text_format(message(name)?, text).map_err(|error| {
        let label = error.labels().and_then(|mut labels| labels.next());
        let place = label.map(|label| format!("line {}: ", line_of(text, label.offset())));
        JsonError::Syntax(format!("{}{error}", place.unwrap_or_default()))
    })?;
    has_form_in_json(pool()?, &parsed)?;
    canonical::encode(pool()?, &parsed).map_err(JsonError::Encoding)
}

/// Text format may state values that no well-formed message has, such as a duration of a million years. REST
/// could not serve them, and the readers of JSON and YAML refuse them, too. The bytes of an unknown type
/// pass.
fn has_form_in_json(pool: &DescriptorPool, message: &DynamicMessage) -> Result<(), JsonError> {
    let Err(reason) = well_formed(pool, message, DEPTH_MAX) else { return Ok(()) };
    let resources = message.get_field_by_name("resources");
    let mut resources = resources.iter().filter_map(|list| list.as_list()).flatten();
    let bad = resources.position(|resource| {
        resource.as_message().is_some_and(|resource| well_formed(pool, resource, DEPTH_MAX).is_err())
    });
    let path = bad.map_or_else(|| "response".to_owned(), |index| format!("resources[{index}]"));
    let message = message.descriptor().full_name().to_owned();
    Err(JsonError::Content { path, message, reason })
}

/// `depth`: the remaining levels of messages. Bytes in place of fields have no brackets to count.
fn well_formed(pool: &DescriptorPool, message: &DynamicMessage, depth: usize) -> Result<(), String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!("messages are nested deeper than {DEPTH_MAX}"));
    };
    let descriptor = message.descriptor();
    if descriptor.full_name() == ANY {
        let any = message.transcode_to::<Any>().map_err(|error| error.to_string())?;
        let Some(payload) = any_message(pool, &any.type_url) else { return Ok(()) };
        let payload = DynamicMessage::decode(payload, &*any.value).map_err(|error| error.to_string())?;
        return well_formed(pool, &payload, depth);
    }
    if descriptor.full_name().starts_with("google.protobuf.") {
        return serde_json::to_writer(std::io::sink(), message).map_err(|error| error.to_string());
    }
    let mut inner = message.fields().flat_map(|(_, value)| match value {
        Value::Message(inner) => vec![inner],
        Value::List(values) => values.iter().filter_map(Value::as_message).collect(),
        Value::Map(entries) => entries.values().filter_map(Value::as_message).collect(),
        _ => Vec::new(),
    });
    inner.try_for_each(|inner| well_formed(pool, inner, depth))
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// Counts brackets outside strings and comments.
fn check_depth(text: &str) -> Result<(), JsonError> {
    let (mut depth, mut quote, mut is_escaped, mut in_comment) = (0_usize, None, false, false);
    for (offset, byte) in text.bytes().enumerate() {
        match (byte, quote) {
            (b'\n', _) => (in_comment, quote, is_escaped) = (false, None, false),
            _ if in_comment => {}
            _ if is_escaped => is_escaped = false,
            (b'\\', Some(_)) => is_escaped = true,
            (_, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => {}
            (b'"' | b'\'', None) => quote = Some(byte),
            (b'#', None) => in_comment = true,
            (b'{' | b'<' | b'[', None) => depth += 1,
            (b'}' | b'>' | b']', None) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            let line = line_of(text, offset);
            return Err(JsonError::Syntax(format!(
                "line {line}: messages are nested deeper than {DEPTH_MAX}"
            )));
        }
    }
    Ok(())
}
