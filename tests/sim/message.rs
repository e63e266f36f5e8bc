//! Messages of control planes, in a form that both the engine and the reference model take.

use std::time::Duration;

use sluice_xds::{BadElement, Code, DeltaResponse, Element, Received, Response, SotwResponse, Variant};

use super::words::{Content, Lexicon, Mask, bit};

#[derive(Clone, Debug)]
pub enum Item {
    Resource {
        name: usize,
        content: Content,
        version: Box<str>,
        ttl: Option<u64>,
    },
    /// No payload: a heartbeat, or an absence as old servers report it.
    Bare {
        name: usize,
        version: Box<str>,
        ttl: Option<u64>,
    },
    /// An unusable element; without a name it cannot be identified.
    Bad(Option<usize>),
}

impl Item {
    pub fn name(&self) -> Option<usize> {
        match self {
            Item::Resource { name, .. } | Item::Bare { name, .. } => Some(*name),
            Item::Bad(name) => *name,
        }
    }
}

/// One response of a control plane.
#[derive(Clone, Debug)]
pub struct Message {
    pub variant: Variant,
    pub ty: usize,
    pub nonce: String,
    pub version: String,
    pub items: Vec<Item>,
    pub removed: Mask,
    /// Names that the server cannot supply.
    pub errors: Vec<(usize, Code)>,
    /// The message is a part of the first answer to a wildcard.
    pub is_of_first: bool,
}

impl Message {
    /// A name occurs twice (SST-8, DEL-16).
    pub fn is_void(&self) -> bool {
        let mut seen = 0;
        let mut twice = false;
        for name in self.items.iter().filter_map(Item::name) {
            twice |= seen & bit(name) != 0;
            seen |= bit(name);
        }
        twice || seen & self.removed != 0
    }

    pub fn has_faults(&self) -> bool {
        self.is_void() || self.items.iter().any(|item| matches!(item, Item::Bad(_)))
    }

    pub fn is_unidentified(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Bad(None)))
    }

    /// Heartbeats and nothing else (TTL-6).
    pub fn is_heartbeat(&self) -> bool {
        !self.items.is_empty() && self.items.iter().all(|item| matches!(item, Item::Bare { .. }))
    }

    /// The message in the engine's form.
    pub fn response(&self, words: &Lexicon, class: usize) -> Response {
        let resources = self.items.iter().map(|item| element(words, self.ty, class, item)).collect();
        let (type_url, nonce) = (words.types[self.ty].clone(), self.nonce.clone());
        let (errors, control_plane) = (self.resource_errors(words), String::new());
        match self.variant {
            Variant::Sotw => Response::Sotw(SotwResponse {
                version_info: self.version.clone(),
                type_url,
                states_type: true,
                nonce,
                resources,
                errors,
                control_plane,
            }),
            Variant::Delta => Response::Delta(DeltaResponse {
                system_version_info: self.version.clone(),
                type_url,
                nonce,
                resources,
                removed: words.list(self.ty, self.removed),
                errors,
                control_plane,
            }),
        }
    }
}

fn element(words: &Lexicon, ty: usize, class: usize, item: &Item) -> Element {
    match item {
        Item::Resource { name, content, version, ttl } => {
            let ttl = ttl.map(Duration::from_micros);
            Ok(Received {
                name: words.names[ty][*name].clone(),
                upstream_version: (**version).into(),
                resource: Some(words.resource(ty, *name, class, *content, ttl)),
                ttl,
            })
        }
        Item::Bare { name, version, ttl } => Ok(Received {
            name: words.names[ty][*name].clone(),
            upstream_version: (**version).into(),
            resource: None,
            ttl: ttl.map(Duration::from_micros),
        }),
        Item::Bad(name) => Err(BadElement {
            name: name.map(|name| words.names[ty][name].clone()),
            reason: "it is bad".to_owned(),
            is_instance: true,
        }),
    }
}
