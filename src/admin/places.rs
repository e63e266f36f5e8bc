//! Cursors in the list of resources.

use super::page::{Page, cursor};
use super::params::{Declined, bad_request};
use crate::driver::api::status::{ResourcePlace, ResourceStatus};
use crate::xds::{ResourceName, TypeUrl};

/// The place of a cursor.
pub(super) fn read(page: &Page) -> Result<Option<ResourcePlace>, Declined> {
    let Some((source, type_url, number, name)) = page.after::<(u64, String, usize, String)>()? else {
        return Ok(None);
    };
    let Some(collection) = ResourceStatus::COLLECTIONS.get(number) else {
        return Err(bad_request("after is no cursor of a resource".to_owned()));
    };
    let (type_url, name) = (TypeUrl::new(&type_url), ResourceName::new(&name));
    Ok(Some(ResourcePlace { source, type_url, collection, name }))
}

/// The cursor of a resource.
pub(super) fn write(resource: &ResourceStatus) -> String {
    let number = ResourceStatus::COLLECTIONS.iter().position(|collection| *collection == resource.collection);
    cursor(&(resource.source, resource.type_url.as_str(), number, resource.name.as_str()))
}
