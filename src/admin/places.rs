//! Cursors in the list of resources.

use super::page::{Page, cursor};
use crate::driver::api::status::{ResourcePlace, ResourceStatus};
use crate::xds::{ResourceName, TypeUrl};

/// The place of a cursor.
pub(super) fn read(page: &Page) -> Result<Option<ResourcePlace>, String> {
    let Some((source, type_url, number, name)) = page.after::<(u64, String, usize, String)>()? else {
        return Ok(None);
    };
    let Some(collection) = ResourceStatus::COLLECTIONS.get(number) else {
        return Err("after is no cursor of a resource".to_owned());
    };
    let (type_url, name) = (TypeUrl::new(&type_url), ResourceName::new(&name));
    Ok(Some(ResourcePlace { source, type_url, collection, name }))
}

/// The cursor of a resource.
pub(super) fn write(found: &ResourceStatus) -> String {
    let number = ResourceStatus::COLLECTIONS.iter().position(|collection| *collection == found.collection);
    cursor(&(found.source, found.type_url.as_str(), number, found.name.as_str()))
}
