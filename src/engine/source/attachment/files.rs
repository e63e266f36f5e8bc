//! The files of a directory that serve a source.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Time;
use crate::engine::time::ReceivedAt;
use crate::xds::{Code, Resource, ResourceName, Status, TypeUrl};

/// The resources of one type by name.
pub type Members = BTreeMap<ResourceName, Arc<Resource>>;

/// The last good state of a directory; `None` until there is a good state.
#[derive(Debug, Default)]
pub struct Files {
    state: Option<BTreeMap<TypeUrl, Members>>,
    /// The same resources by alias (ALI-2).
    by_alias: BTreeMap<TypeUrl, Members>,
    /// The time of the last good state.
    read_at: Time,
    is_nothing: bool,
    refusal: Option<Arc<Status>>,
}

impl Files {
    /// No server is asked, for this reason: all names stay unknown.
    pub fn refused(why: Status) -> Files {
        Files { refusal: Some(Arc::new(why)), ..Files::default() }
    }

    /// A server that is known to have no resources.
    pub fn nothing() -> Files {
        Files { state: Some(BTreeMap::new()), is_nothing: true, ..Files::default() }
    }

    /// The reason if no server can be asked for a name (FED-3).
    pub fn asks_nobody(&self, name: &ResourceName) -> Option<Arc<Status>> {
        let text = || match name.authority() {
            Some(authority) => format!("no server is configured for the authority {authority:?}"),
            None => "there is no server that could be asked for it".to_owned(),
        };
        let nothing = || self.is_nothing.then(|| Arc::new(Status::new(Code::NotFound, text())));
        self.refusal.clone().or_else(nothing)
    }

    /// The time of receipt of resources that no session wanted when they were read.
    pub(in crate::engine::source) fn read_at(&self) -> ReceivedAt {
        self.read_at.into()
    }

    /// Whether there has been a good state.
    pub(in crate::engine::source) fn is_read(&self) -> bool {
        self.state.is_some()
    }

    /// Replaces the state, and indexes the resources by name and by alias.
    pub fn replace(&mut self, state: Vec<(TypeUrl, Vec<Arc<Resource>>)>, now: Time) {
        self.read_at = now;
        let mut types: BTreeMap<TypeUrl, Members> = BTreeMap::new();
        self.by_alias.clear();
        for (type_url, resources) in state {
            for resource in resources.iter().filter(|resource| !resource.aliases.is_empty()) {
                let aliases = resource.aliases.iter().map(|alias| (alias.clone(), resource.clone()));
                self.by_alias.entry(type_url.clone()).or_default().extend(aliases);
            }
            let members = types.entry(type_url).or_default();
            members.extend(resources.into_iter().map(|resource| (resource.name.clone(), resource)));
        }
        self.state = Some(types);
    }

    /// The resource of this name, or the resource with this alias. Files have one resource for all
    /// parameters.
    pub fn named(&self, type_url: &TypeUrl, name: &ResourceName) -> Option<Arc<Resource>> {
        if name.is_located() {
            let resource = self.named(type_url, &name.plain().into())?;
            return Some(Arc::new(Resource { name: name.clone(), ..(*resource).clone() }));
        }
        let own = self.members(type_url).flatten().and_then(|members| members.get(name));
        own.or_else(|| self.by_alias.get(type_url)?.get(name)).cloned()
    }

    /// The members of a type; `None` before the first good state. A type without a file is known to be empty
    /// (FIL-8).
    pub fn members(&self, type_url: &TypeUrl) -> Option<Option<&Members>> {
        self.state.as_ref().map(|types| types.get(type_url))
    }
}
