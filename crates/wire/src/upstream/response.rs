//! Responses from upstreams.
//!
//! Unusable elements are reported one by one, with their names if readable, so that the rest of the response
//! stays usable (RLY-37). Wire order and repeated names are preserved. The machine that reads the response
//! decides whether a repetition makes the response invalid (SST-8, DEL-16).

use std::sync::Arc;

use bytes::Bytes;

use super::super::dynamic::read_constraints;
use super::super::fields::{Fields, Malformed, Payload, build, put_bytes, put_element, put_message};
use super::super::response::WRAPPER;
use super::super::status;
use super::resource::{
    ResourceReader, bad, is_wrapper, key_of, may_be_nameless, read_any, read_resource_name,
};
use sluice_xds::dynamic::is_reserved;
use sluice_xds::{
    BadElement, Code, DeltaResponse, Element, Kind, ResourceCopies, ResourceError, ResourceName, Response,
    SotwResponse, Status, TypeUrl, Variant,
};

/// The maximum number of bad elements reported one by one. A flood of tiny bad elements must not take a
/// multiple of its size in memory.
const BAD_ELEMENTS: usize = 1000;

/// The reason why a whole response is unusable. Its stream must end: there may not even be a nonce for a
/// NACK.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the response has no type_url")]
    NoType,
    #[error("the response has no type_url, and the first resource has no type")]
    NoResourceType,
    #[error("the response has type {stated:?}, but the request was for {expected}")]
    OtherType { stated: String, expected: String },
    #[error("a file with a single Resource: {0}")]
    Collection(String),
    #[error("the length prefix is {length}, but {rest} bytes follow; a file contains one DiscoveryResponse")]
    Delimiter { length: usize, rest: usize },
}

impl From<DecodeError> for Status {
    fn from(error: DecodeError) -> Self {
        Status::new(Code::InvalidArgument, error.to_string())
    }
}

/// Reads a response of an upstream. Resources that `copies` has are taken from there; the others are added.
pub fn decode_response(
    variant: Variant,
    message: Bytes,
    copies: Option<&dyn ResourceCopies>,
) -> Result<Response, DecodeError> {
    match variant {
        Variant::Sotw => decode_sotw(&message, Head::read(&message, 6)?, copies).map(Response::Sotw),
        Variant::Delta => decode_delta(&message, copies).map(Response::Delta),
    }
}

/// Reads a `DiscoveryResponse` of an upstream.
pub fn decode_sotw_response(message: Bytes) -> Result<SotwResponse, DecodeError> {
    decode_sotw(&message, Head::read(&message, 6)?, None)
}

/// Reads a binary file: a `DiscoveryResponse` (FIL-4), or a `Resource` with a list collection (FIL-5). Field
/// 3 distinguishes them: in a `Resource` it is the mandatory name, in a `DiscoveryResponse` a flag.
///
/// A file may omit `type_url`; the first resource then states the type.
pub fn decode_file_response(message: Bytes) -> Result<SotwResponse, DecodeError> {
    for field in Fields::of(&message) {
        if let (3, Payload::Bytes(_)) = field? {
            return decode_file_resource(&message);
        }
    }
    decode_file_message(message)
}

/// Reads a `Resource` with a list collection (FIL-5).
pub fn decode_file_resource(resource: &[u8]) -> Result<SotwResponse, DecodeError> {
    decode_file_message(collection_as_response(resource)?)
}

/// Wraps a `Resource` in a `DiscoveryResponse`. The resource must have a name and contain a list collection.
/// All entries of the collection must be inline, because a file can't serve the others.
fn collection_as_response(resource: &[u8]) -> Result<Bytes, DecodeError> {
    let (mut name, mut any) = ("", None);
    for field in Fields::of(resource) {
        match field? {
            (2, payload) => any = Some(read_any(payload.bytes()?)?),
            (3, payload) => name = payload.text()?,
            _ => {}
        }
    }
    let refused = |reason: String| Err(DecodeError::Collection(reason));
    let Some((type_url, value)) = any else { return refused("the Resource has no content".to_owned()) };
    let kind = TypeUrl::new(type_url).kind();
    if !matches!(kind, Kind::ClusterCollection | Kind::ListenerCollection | Kind::LbEndpointCollection) {
        let type_url: String = type_url.chars().take(200).collect();
        return refused(format!("the type {type_url:?} is not a list collection; use a DiscoveryResponse"));
    }
    if name.is_empty() {
        return refused("the resource has no name".to_owned());
    }
    if let Some(index) = first_locator(value)? {
        return refused(format!("entries[{index}] of {name:?} is not inline"));
    }
    let message = build(0, |sink| {
        put_message(sink, 2, |any| {
            put_bytes(any, 1, WRAPPER.as_bytes());
            put_element(any, 2, resource);
        });
    });
    Ok(message.into())
}

/// The index of the first entry that is a locator instead of an inline resource.
fn first_locator(collection: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut index = 0;
    for field in Fields::of(collection) {
        let (1, entry) = field? else { continue };
        for field in Fields::of(entry.bytes()?) {
            if let (1, _) = field? {
                return Ok(Some(index));
            }
        }
        index += 1;
    }
    Ok(None)
}

/// Strips the length prefix of a file with one message. Nothing may follow the message.
pub fn undelimited(mut bytes: Bytes) -> Result<Bytes, DecodeError> {
    let length = prost::decode_length_delimiter(&mut bytes).map_err(Malformed::from)?;
    if length == bytes.len() { Ok(bytes) } else { Err(DecodeError::Delimiter { length, rest: bytes.len() }) }
}

fn decode_file_message(message: Bytes) -> Result<SotwResponse, DecodeError> {
    let mut head = Head::read(&message, 6)?;
    if head.type_url.is_empty() {
        head.type_url = first_resource_type(&message)?.ok_or(DecodeError::NoType)?;
        if head.type_url.is_empty() {
            return Err(DecodeError::NoResourceType);
        }
    }
    let mut response = decode_sotw(&message, head, None)?;
    response.resources.iter_mut().for_each(refuse_variant);
    if !response.type_url.has_empty_names() {
        response.resources.iter_mut().for_each(refuse_nameless);
    }
    Ok(response)
}

/// In files, each name has one resource.
fn refuse_variant(element: &mut Element) {
    if let Ok(received) = element
        && received.name.is_variant()
    {
        let reason = "dynamic parameter constraints are not supported in files";
        *element = Err(bad(received.name.plain(), reason.to_owned()));
    }
}

/// The author of a file must learn about a forgotten name.
fn refuse_nameless(element: &mut Element) {
    if element.as_ref().is_ok_and(|received| received.name.as_str().is_empty()) {
        *element = Err(bad("", "the resource has no name".to_owned()));
    }
}

/// Reads a `DiscoveryResponse` from a REST server. The path implies the type, so the response may omit the
/// type (RST-1).
pub fn decode_rest_response(message: Bytes, type_url: &TypeUrl) -> Result<SotwResponse, DecodeError> {
    let mut head = Head::read(&message, 6)?;
    let states_type = !head.type_url.is_empty();
    if !states_type {
        head.type_url = type_url.as_str();
    } else if head.type_url != type_url.as_str() {
        let (stated, expected) = (head.type_url.chars().take(200).collect(), type_url.as_str().to_owned());
        return Err(DecodeError::OtherType { stated, expected });
    }
    Ok(SotwResponse { states_type, ..decode_sotw(&message, head, None)? })
}

/// Reads a `DeltaDiscoveryResponse` of an upstream.
pub fn decode_delta_response(message: Bytes) -> Result<DeltaResponse, DecodeError> {
    decode_delta(&message, None)
}

fn decode_delta(message: &Bytes, copies: Option<&dyn ResourceCopies>) -> Result<DeltaResponse, DecodeError> {
    let head = Head::read(message, 7)?;
    let type_url = head.type_url()?;
    let mut reader = ResourceReader::new(message, &type_url, "", copies);
    let mut elements = Elements::default();
    let (mut removed, mut errors) = (Vec::new(), Vec::new());
    for field in Fields::of(message) {
        match field? {
            (2, payload) => elements.push(reader.delta(payload.bytes()?)),
            (6, payload) => elements.file(&mut removed, nonempty(payload.text()?, &type_url)),
            (8, payload) => elements.file(&mut removed, removed_resource_name(payload.bytes()?, &type_url)),
            (9, payload) => elements.file(&mut errors, resource_error(payload.bytes()?)),
            _ => {}
        }
    }
    Ok(DeltaResponse {
        system_version_info: head.version.to_owned(),
        nonce: head.nonce.to_owned(),
        resources: elements.into_vec(),
        removed,
        errors,
        control_plane: head.control_plane.to_owned(),
        type_url,
    })
}

fn decode_sotw(
    message: &Bytes,
    head: Head,
    copies: Option<&dyn ResourceCopies>,
) -> Result<SotwResponse, DecodeError> {
    let type_url = head.type_url()?;
    let mut reader = ResourceReader::new(message, &type_url, head.version, copies);
    let mut elements = Elements::default();
    let mut errors = Vec::new();
    for field in Fields::of(message) {
        match field? {
            (2, payload) => elements.push(reader.sotw(payload.bytes()?)),
            (7, payload) => elements.file(&mut errors, resource_error(payload.bytes()?)),
            _ => {}
        }
    }
    Ok(SotwResponse {
        version_info: head.version.to_owned(),
        states_type: true,
        nonce: head.nonce.to_owned(),
        resources: elements.into_vec(),
        errors,
        control_plane: head.control_plane.to_owned(),
        type_url,
    })
}

/// Fields that must be known before the first element is read; they may stand anywhere in the message.
#[derive(Default)]
struct Head<'a> {
    version: &'a str,
    type_url: &'a str,
    nonce: &'a str,
    control_plane: &'a str,
}

impl<'a> Head<'a> {
    /// The variants differ only in the field number of `control_plane`.
    fn read(message: &'a [u8], control_plane: u32) -> Result<Self, Malformed> {
        let mut head = Head::default();
        for field in Fields::of(message) {
            match field? {
                (1, payload) => head.version = payload.text()?,
                (4, payload) => head.type_url = payload.text()?,
                (5, payload) => head.nonce = payload.text()?,
                (number, payload) if number == control_plane => {
                    for field in Fields::of(payload.bytes()?) {
                        if let (1, identifier) = field? {
                            head.control_plane = identifier.text()?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(head)
    }

    fn type_url(&self) -> Result<TypeUrl, DecodeError> {
        if self.type_url.is_empty() { Err(DecodeError::NoType) } else { Ok(TypeUrl::new(self.type_url)) }
    }
}

/// The elements read so far.
#[derive(Default)]
struct Elements {
    elements: Vec<Element>,
    bad: usize,
}

impl Elements {
    fn push(&mut self, element: Element) {
        if element.is_err() {
            self.bad += 1;
        }
        if element.is_ok() || self.bad <= BAD_ELEMENTS {
            self.elements.push(element);
        }
    }

    /// Adds an entry to its own list, or reports a bad entry among the elements.
    fn file<T>(&mut self, into: &mut Vec<T>, entry: Result<T, BadElement>) {
        match entry {
            Ok(entry) => into.push(entry),
            Err(entry) => self.push(Err(BadElement { is_instance: false, ..entry })),
        }
    }

    fn into_vec(mut self) -> Vec<Element> {
        if self.bad > BAD_ELEMENTS {
            let reason = format!("{} more elements are bad", self.bad - BAD_ELEMENTS);
            self.elements.push(Err(bad("", reason)));
        }
        self.elements
    }
}

fn nonempty(name: &str, type_url: &TypeUrl) -> Result<ResourceName, BadElement> {
    if name.is_empty() && !may_be_nameless(type_url) {
        return Err(bad("", "a removed resource has no name".to_owned()));
    }
    if is_reserved(name) {
        return Err(bad("", "a removed name ends with a reserved character, U+FDD0 or U+FDD1".to_owned()));
    }
    Ok(ResourceName::received(name))
}

fn removed_resource_name(message: &[u8], type_url: &TypeUrl) -> Result<ResourceName, BadElement> {
    let (name, constraints) = read_resource_name(message).map_err(|error| bad("", error.to_string()))?;
    nonempty(name, type_url)?;
    let constraints = constraints.map(read_constraints).transpose();
    let constraints = constraints.map_err(|error| bad(name, error.to_string()))?;
    Ok(key_of(name, constraints.map(Arc::new).as_ref()))
}

/// An entry of `resource_errors`. An entry without a name or with an OK status is invalid (ERR-6).
fn resource_error(message: &[u8]) -> Result<ResourceError, BadElement> {
    let malformed = |error: Malformed| bad("", error.to_string());
    let (mut name, mut error) = ("", Status::ok());
    for field in Fields::of(message) {
        match field.map_err(malformed)? {
            (1, payload) => (name, _) = payload.bytes().and_then(read_resource_name).map_err(malformed)?,
            (2, payload) => {
                let detail = payload.bytes().and_then(|detail| status::read(detail, status::MESSAGE_BYTES));
                error = detail.map_err(malformed)?;
            }
            _ => {}
        }
    }
    if name.is_empty() {
        return Err(bad("", "a resource error has no name".to_owned()));
    }
    if error.code == Code::Ok {
        return Err(bad(name, "a resource error has no error code".to_owned()));
    }
    Ok(ResourceError { name: ResourceName::received(name), status: error })
}

/// The type of the first resource, unwrapped; empty for a resource without a type, and `None` without a
/// resource.
fn first_resource_type(message: &[u8]) -> Result<Option<&str>, Malformed> {
    let mut first = None;
    for field in Fields::of(message) {
        let (2, payload) = field? else { continue };
        let (type_url, value) = read_any(payload.bytes()?)?;
        if !is_wrapper(type_url) {
            return Ok(Some(type_url));
        }
        for field in Fields::of(value) {
            let (2, payload) = field? else { continue };
            return Ok(Some(read_any(payload.bytes()?)?.0));
        }
        first = Some("");
    }
    Ok(first)
}
