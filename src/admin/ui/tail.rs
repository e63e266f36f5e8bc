//! The page of a client's requests and responses, as they come: the endpoint `/tail`. The lines need scripts.

use askama::Template;
use sluice_admin_api::parameters::TailPageParameters;

use super::frame::{Ask, Frame, PageFault};
use super::parts::{ShellCommand, client_argument};
use crate::admin::params::read;
use crate::admin::types;
use sluice_text::encoded;

#[derive(Template)]
#[template(path = "tail.html")]
struct TailPage {
    frame: Frame,
    id: u64,
    node: String,
    /// The types of the client, for a choice, and the chosen one.
    types: Vec<String>,
    chosen: String,
    commands: Vec<ShellCommand>,
}

pub(super) async fn html(ask: &Ask<'_>, id: &str) -> Result<String, PageFault> {
    let TailPageParameters { r#type: type_name } = read(ask.uri)?;
    types::check(ask.admin, type_name.as_deref()).await?;
    let session = ask.session(id)?;
    let mut frame = Frame::new(ask, "clients", "As it comes");
    frame.stream = format!("/tail?client={}", session.id);
    let mut command = format!("sluice tail {}", client_argument(&session));
    let chosen = type_name.unwrap_or_default();
    if !chosen.is_empty() {
        frame.stream += &format!("&type={}", encoded(&chosen));
        command += &format!(" --type {}", super::text::argument(&chosen).unwrap_or_default());
    }
    let page = TailPage {
        frame,
        id: session.id,
        node: session.node_id.to_string(),
        types: session.types.iter().map(|status| status.type_url.short().to_owned()).collect(),
        chosen,
        commands: vec![ShellCommand(command)],
    };
    Ok(page.render()?)
}
