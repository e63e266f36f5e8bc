//! The file of one source.
//!
//! ```text
//! "SLUICECP" | format: u32 LE | records | BLAKE3 of all before, 32 bytes
//! record:  kind: u8 | length: u32 LE | payload | checksum
//! checksum: 8 bytes of BLAKE3 over the number of the record, and all before the checksum in the record
//! records: HEADER, then per type: TYPE, NAME..., WILDCARD MEMBER..., (GLOB MEMBER...)..., and at last END
//! ```
//!
//! Integers are little-endian. Text and bytes follow their length in four bytes. An optional value follows a
//! byte 0 or 1. A build with another format number, or with another computation of content versions, ignores
//! the file.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::record::{FORMAT, Fields, FormatError, Payload, Reader, Sink, Writer};
use super::{Digest, Identity, micros, time_of};
use sluice_engine::cache::CachedResource;
use sluice_engine::cache::expiry::Leased;
use sluice_engine::collection::CollectionKind;
use sluice_engine::snapshot::TypeSnapshot;
use sluice_engine::source::{Image, Kept, RestoredType};
use sluice_wire::own_name::OwnName;
use sluice_wire::version::FORMAT as VERSIONS;
use sluice_xds::{Any, Resource, ResourceName, TypeUrl, Version};

const MAGIC: &[u8; 8] = b"SLUICECP";

const START_BYTES: usize = MAGIC.len() + 4;
const WHOLE_BYTES: usize = 32;

const HEADER: u8 = 1;
const TYPE: u8 = 2;
const NAME: u8 = 3;
const WILDCARD: u8 = 4;
const GLOB: u8 = 5;
const MEMBER: u8 = 6;
const END: u8 = 7;

/// The metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub identity: Identity,
    /// The relay's node as its servers see it. With another node, the servers might answer differently.
    pub relay: Digest,
    pub written_at: SystemTime,
    /// The last time at which the server confirmed the content.
    pub confirmed_at: SystemTime,
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    pub header: Header,
    pub types: Vec<RestoredType>,
}

impl Restored {
    pub fn resources(&self) -> usize {
        self.types.iter().map(RestoredType::resources).sum()
    }

    /// The content `elapsed` after it was read. Times to live continue to run in the meantime (I17); an
    /// expired resource is gone as if the server had removed it (TTL-8).
    pub fn later(self: &Arc<Self>, elapsed: Duration) -> Arc<Restored> {
        if !self.types.iter().flat_map(RestoredType::all).any(|kept| kept.left.is_some()) {
            return self.clone();
        }
        let go_on = |all: &mut Vec<Kept>| {
            all.retain(|kept| kept.left.is_none_or(|left| left > elapsed));
            all.iter_mut().filter_map(|kept| kept.left.as_mut()).for_each(|left| *left -= elapsed);
        };
        let mut later = Restored::clone(self);
        for of_type in &mut later.types {
            let globs = of_type.globs.iter_mut().map(|(_, members)| members);
            std::iter::once(&mut of_type.names).chain(&mut of_type.wildcard).chain(globs).for_each(go_on);
        }
        Arc::new(later)
    }
}

// === writing ===

/// Writes a file piece by piece. Returns the file's size in bytes.
///
/// # Errors
/// Errors of the sink, or a resource that is too long.
pub fn encode<'a>(header: &Header, image: &Image, sink: &'a mut Sink<'a>) -> io::Result<u64> {
    write(header, image, |type_url| !type_url.is_secret(), sink)
}

/// Writes the same with the Secrets, for memory that only a successor reads (HND-2).
///
/// # Errors
/// As [`encode`].
pub fn encode_with_secrets<'a>(header: &Header, image: &Image, sink: &'a mut Sink<'a>) -> io::Result<u64> {
    write(header, image, |_| true, sink)
}

fn write<'a>(
    header: &Header,
    image: &Image,
    is_written: impl Fn(&TypeUrl) -> bool,
    sink: &'a mut Sink<'a>,
) -> io::Result<u64> {
    let start = [&MAGIC[..], &FORMAT.to_le_bytes()].concat();
    let mut writer = Writer::new(sink, &start);
    writer.record(HEADER, |payload| put_header(payload, header))?;
    for (type_url, snapshot) in image.snapshot.types().filter(|(type_url, _)| is_written(type_url)) {
        OfType { image, type_url, snapshot }.encode(&mut writer)?;
    }
    let records = writer.records();
    writer.record(END, |payload| payload.u64(records))?;
    writer.finish()
}

/// Whether the file of an image would be empty.
pub fn is_empty(image: &Image) -> bool {
    let is_held = |(type_url, snapshot): (&TypeUrl, &TypeSnapshot)| {
        let written = OfType { image, type_url, snapshot };
        written.names().next().is_some()
            || written.has_wildcard()
            || image.complete_globs.contains_key(type_url)
    };
    !image.snapshot.types().filter(|(type_url, _)| !type_url.is_secret()).any(is_held)
}

fn put_header(payload: &mut Payload<'_>, header: &Header) {
    payload.text(&header.identity.list);
    payload.text(&header.identity.server);
    payload.raw(&header.identity.class);
    payload.raw(&header.relay);
    payload.u64(micros(header.written_at));
    payload.u64(micros(header.confirmed_at));
    payload.bytes(VERSIONS);
}

struct OfType<'a> {
    image: &'a Image,
    type_url: &'a TypeUrl,
    snapshot: &'a TypeSnapshot,
}

impl<'a> OfType<'a> {
    /// Resources subscribed to by name that exist. Names with dynamic parameters are left out: their content
    /// depends on the server's variants, so the relay subscribes to them anew after a restart (DYN-7).
    fn names(&self) -> impl Iterator<Item = (&'a ResourceName, &'a Arc<Resource>)> {
        let entries = self.snapshot.names.entries.iter().filter(|(name, _)| !name.is_located());
        entries
            .filter_map(|(name, entry)| Some((name, entry.resource()?)))
            .filter(|(_, resource)| may_be_kept(resource))
    }

    /// False if any member must not be written: the rest would not be a complete membership.
    fn has_wildcard(&self) -> bool {
        let is_whole = self.snapshot.wildcard.is_whole();
        is_whole && self.snapshot.wildcard.members.values().all(|cached| may_be_kept(&cached.resource))
    }

    fn encode(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.record(TYPE, |payload| payload.text(self.type_url.as_str()))?;
        for (name, resource) in self.names() {
            writer.record(NAME, |payload| {
                payload.text(name.as_str());
                self.put(payload, CollectionKind::Names, name, resource);
            })?;
        }
        if self.has_wildcard() {
            writer.record(WILDCARD, |_| {})?;
            for (name, cached) in &self.snapshot.wildcard.members {
                let resource = &cached.resource;
                writer
                    .record(MEMBER, |payload| self.put(payload, CollectionKind::Wildcard, name, resource))?;
            }
        }
        let mut globs: BTreeMap<ResourceName, Vec<_>> = BTreeMap::new();
        for (name, CachedResource { resource, .. }) in &self.snapshot.globs.members {
            name.glob().into_iter().for_each(|glob| globs.entry(glob).or_default().push((name, resource)));
        }
        for glob in self.image.complete_globs.get(self.type_url).into_iter().flatten() {
            let members = globs.remove(glob).unwrap_or_default();
            if members.iter().any(|(_, resource)| !may_be_kept(resource)) {
                continue;
            }
            writer.record(GLOB, |payload| payload.text(glob.as_str()))?;
            for (name, resource) in members {
                writer.record(MEMBER, |payload| self.put(payload, CollectionKind::Globs, name, resource))?;
            }
        }
        Ok(())
    }

    fn put(&self, payload: &mut Payload<'_>, kind: CollectionKind, name: &ResourceName, resource: &Resource) {
        let versions = self.image.versions.get(&(self.type_url.clone(), kind));
        let version = versions.and_then(|versions| {
            let at = versions.binary_search_by(|(other, _)| other.cmp(name)).ok()?;
            versions.get(at).map(|(_, version)| &**version)
        });
        // A server may state another time to live, or none, along with the same bytes. The resource itself is
        // then unchanged.
        let left = self.image.left.get(&Leased::new(self.type_url, kind, name));
        payload.text(resource.name.as_str());
        payload.raw(&resource.version.0.to_le_bytes());
        let own_type =
            (*resource.body.type_url != *self.type_url.as_str()).then_some(&*resource.body.type_url);
        payload.option(own_type, |payload, type_url| payload.text(type_url));
        payload.bytes(&resource.body.value);
        payload.u64(resource.aliases.len() as u64);
        resource.aliases.iter().for_each(|alias| payload.text(alias.as_str()));
        payload.option(resource.metadata.as_ref(), |payload, metadata| payload.bytes(metadata));
        payload.option(resource.endpoints.as_ref(), |payload, name| payload.text(name.as_str()));
        payload.option(left.map(|left| left.ttl), put_duration);
        payload.option(left.map(|left| left.left), put_duration);
        payload.text(version.unwrap_or_default());
    }
}

fn put_duration(payload: &mut Payload<'_>, duration: Duration) {
    payload.u64(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
}

/// False for uncacheable resources (CCH-1), and for variants: their content is valid for some parameters
/// only.
fn may_be_kept(resource: &Resource) -> bool {
    !resource.do_not_cache && resource.constraints.is_none()
}

// === reading ===

/// Reads a whole file. Detects any changed bit and any truncation.
///
/// # Errors
/// The reason why the file is unusable.
pub fn decode(file: &[u8], now: SystemTime) -> Result<Restored, FormatError> {
    let (start, rest) = file.split_at_checked(START_BYTES).ok_or(FormatError::Foreign)?;
    let format =
        start.strip_prefix(MAGIC).and_then(|format| format.try_into().ok()).ok_or(FormatError::Foreign)?;
    let format = u32::from_le_bytes(format);
    if format != FORMAT {
        return Err(FormatError::Format(format));
    }
    let length = rest.len().checked_sub(WHOLE_BYTES).ok_or(FormatError::Damaged { record: None })?;
    let (records, whole) = rest.split_at(length);
    let checksum = blake3::hash(file.get(..START_BYTES + length).unwrap_or_default());
    if checksum.as_bytes() != whole {
        return Err(FormatError::Damaged { record: first_damaged(records) });
    }
    read(records, now)
}

/// The number of the damaged record; `None` if only the end of the file is missing.
fn first_damaged(records: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(records);
    while let Some(record) = reader.next(true) {
        if let Err(FormatError::Damaged { record }) = record {
            return record;
        }
    }
    None
}

fn read(records: &[u8], now: SystemTime) -> Result<Restored, FormatError> {
    let mut reader = Reader::new(records);
    let header = match reader.next(false) {
        Some(Ok((HEADER, mut fields))) => read_header(&mut fields)?,
        Some(Err(fault)) => return Err(fault),
        _ => return Err(FormatError::Damaged { record: Some(0) }),
    };
    // If the clock was set back, the elapsed time is unknown (FP6).
    let elapsed = now.duration_since(header.written_at).ok();
    let mut types = Types { elapsed, types: Vec::new(), open: Open::Nothing };
    while let Some(record) = reader.next(false) {
        let (kind, mut fields) = record?;
        if kind == END {
            let count = fields.u64()?.checked_add(1);
            let is_all = count == Some(reader.records()) && reader.next(false).is_none();
            return if is_all {
                Ok(Restored { header, types: types.finish() })
            } else {
                Err(fields.malformed())
            };
        }
        types.take(kind, &mut fields)?;
        fields.end()?;
    }
    Err(FormatError::Damaged { record: Some(reader.records()) })
}

fn read_header(fields: &mut Fields<'_>) -> Result<Header, FormatError> {
    let (list, server) = (fields.text()?.into(), fields.text()?.into());
    let (class, relay) = (fields.array()?, fields.array()?);
    let (written_at, confirmed_at) = (time_of(fields.u64()?), time_of(fields.u64()?));
    if fields.bytes()? != VERSIONS {
        return Err(FormatError::Versions);
    }
    fields.end()?;
    Ok(Header { identity: Identity { list, server, class }, relay, written_at, confirmed_at })
}

/// The collection that the next members belong to.
enum Open {
    Nothing,
    Wildcard,
    Glob,
    /// A collection that cannot be restored because one of its members can't.
    Lost,
}

struct Types {
    /// Time since the file was written; `None` if the clock was set back.
    elapsed: Option<Duration>,
    types: Vec<RestoredType>,
    open: Open,
}

/// The state of a stored resource at the time of reading.
enum Read {
    Lives(Kept),
    /// The time to live ended, so the resource is gone as if the server had removed it (TTL-8).
    Expired,
    /// The remaining time to live is unknown.
    Unknown,
}

impl Types {
    fn take(&mut self, kind: u8, fields: &mut Fields<'_>) -> Result<(), FormatError> {
        if kind == TYPE {
            self.types.push(RestoredType::new(TypeUrl::new(fields.text()?)));
            self.open = Open::Nothing;
            return Ok(());
        }
        let elapsed = self.elapsed;
        let Some(of_type) = self.types.last_mut() else { return Err(fields.malformed()) };
        match (kind, &self.open) {
            (NAME, Open::Nothing) => {
                let name = ResourceName::new(fields.text()?);
                if let Read::Lives(kept) = read_resource(fields, &of_type.type_url, Some(name), elapsed)? {
                    of_type.names.push(kept);
                }
            }
            (WILDCARD, Open::Nothing) => {
                of_type.wildcard = Some(Vec::new());
                self.open = Open::Wildcard;
            }
            (GLOB, _) => {
                of_type.globs.push((ResourceName::new(fields.text()?), Vec::new()));
                self.open = Open::Glob;
            }
            (MEMBER, Open::Wildcard) => match read_resource(fields, &of_type.type_url, None, elapsed)? {
                Read::Lives(kept) => of_type.wildcard.get_or_insert_default().push(kept),
                Read::Expired => {}
                Read::Unknown => {
                    of_type.wildcard = None;
                    self.open = Open::Lost;
                }
            },
            (MEMBER, Open::Glob) => match read_resource(fields, &of_type.type_url, None, elapsed)? {
                Read::Lives(kept) => {
                    if let Some((_, members)) = of_type.globs.last_mut() {
                        members.push(kept);
                    }
                }
                Read::Expired => {}
                Read::Unknown => {
                    of_type.globs.pop();
                    self.open = Open::Lost;
                }
            },
            (MEMBER, Open::Lost) => drop(read_resource(fields, &of_type.type_url, None, elapsed)?),
            _ => return Err(fields.malformed()),
        }
        Ok(())
    }

    fn finish(self) -> Vec<RestoredType> {
        let is_something = |restored: &RestoredType| {
            !restored.names.is_empty() || restored.wildcard.is_some() || !restored.globs.is_empty()
        };
        self.types.into_iter().filter(is_something).collect()
    }
}

/// `asked`: the name in the subscription; may be an alias of the resource's own name.
fn read_resource(
    fields: &mut Fields<'_>,
    type_url: &TypeUrl,
    asked: Option<ResourceName>,
    elapsed: Option<Duration>,
) -> Result<Read, FormatError> {
    let stated = ResourceName::new(fields.text()?);
    // Usually both names are equal, and then share one text.
    let (name, stated) = match asked {
        Some(asked) if asked == stated => (asked.clone(), asked),
        Some(asked) => (asked, stated),
        None => (stated.clone(), stated),
    };
    let version = Version(u128::from_le_bytes(fields.array()?));
    let own_type = fields.option(|fields| fields.text().map(Arc::<str>::from))?;
    let value = Bytes::copy_from_slice(fields.bytes()?);
    let aliases =
        (0..fields.count()?).map(|_| fields.text().map(ResourceName::new)).collect::<Result<_, _>>()?;
    let metadata = fields.option(|fields| fields.bytes().map(Bytes::copy_from_slice))?;
    let endpoints = fields.option(|fields| fields.text().map(ResourceName::new))?;
    let ttl = fields.option(|fields| fields.u64().map(Duration::from_micros))?;
    let left = fields.option(|fields| fields.u64().map(Duration::from_micros))?;
    let server_version = fields.text()?.into();
    let left = match (ttl, left, elapsed) {
        (None, _, _) => None,
        (Some(_), Some(left), Some(elapsed)) if left > elapsed => Some(left - elapsed),
        (Some(_), Some(_), Some(_)) => return Ok(Read::Expired),
        (Some(_), _, _) => return Ok(Read::Unknown),
    };
    let body_has_name =
        OwnName::of(&value).is_ok_and(|own_name| own_name.is(stated.as_str(), type_url.kind()));
    let resource = Resource {
        name: stated,
        version,
        body: Any { type_url: own_type.unwrap_or_else(|| type_url.shared()), value },
        aliases,
        ttl,
        do_not_cache: false,
        body_has_name,
        metadata,
        endpoints,
        constraints: None,
    };
    Ok(Read::Lives(Kept { name, resource: Arc::new(resource), server_version, left }))
}
