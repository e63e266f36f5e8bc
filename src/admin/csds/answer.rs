//! The answer under construction, bounded (ADM-23).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prost::Message;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::admin::state::{Admin, ContentMode};
use sluice_json::redact::redact_bytes;
use sluice_proto::Timestamp;
use sluice_proto::csds::{ClientConfig, ClientStatusRequest, ClientStatusResponse, GenericXdsConfig};
use sluice_xds::{Code, Node, Resource, Status, TypeUrl};

/// The encoded answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The time for building an answer. Building cannot be cancelled. Below the time of the whole call.
const BUILD_MAX: Duration = Duration::from_secs(25);

/// One answer is built at a time, because contents are decoded.
static BUILDING: Semaphore = Semaphore::const_new(1);

/// The answer, and the space left.
pub(super) struct Answer {
    response: ClientStatusResponse,
    bytes: usize,
    bytes_max: usize,
    begun: Instant,
    /// Resources are shown with their contents.
    has_contents: bool,
    /// The size of the request, for an error.
    matched: String,
}

impl Answer {
    /// Builds an answer on a thread without clients.
    pub async fn build(
        admin: &Admin,
        request: &ClientStatusRequest,
        matched: String,
        fill: impl FnOnce(&Admin, &mut Answer) -> Result<(), Status> + Send + 'static,
    ) -> Result<ClientStatusResponse, Status> {
        let has_contents =
            admin.settings.get().content == ContentMode::Redacted && !request.exclude_resource_contents;
        let admin = admin.clone();
        let turn = BUILDING.acquire().await;
        let built = tokio::task::spawn_blocking(move || {
            // The turn ends with the work, also if nobody waits any more.
            let _turn = turn;
            let mut answer = Answer::new(ANSWER_BYTES_MAX, has_contents, matched);
            fill(&admin, &mut answer).map(|()| answer.response)
        });
        built.await.unwrap_or_else(|_| Err(Status::new(Code::Internal, "the answer failed")))
    }

    fn new(bytes_max: usize, has_contents: bool, matched: String) -> Answer {
        let (response, begun) = (ClientStatusResponse::default(), Instant::now());
        Answer { response, bytes: 0, bytes_max, begun, has_contents, matched }
    }

    /// Begins the part of a client. The next rows belong to it.
    pub fn begin(&mut self, client_scope: String, node: sluice_proto::Node) -> Result<(), Status> {
        let config = ClientConfig { node: Some(node), client_scope, ..ClientConfig::default() };
        self.charge(config.encoded_len())?;
        self.response.config.push(config);
        Ok(())
    }

    /// A row, in the generic form (CSD-3).
    pub fn push(&mut self, row: GenericXdsConfig) -> Result<(), Status> {
        self.charge(row.encoded_len() + 8)?;
        if let Some(config) = self.response.config.last_mut() {
            config.generic_xds_configs.push(row);
        }
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Status> {
        self.bytes += bytes;
        let excess = match () {
            () if self.bytes > self.bytes_max => {
                format!("the answer is larger than {} MiB", self.bytes_max >> 20)
            }
            () if self.begun.elapsed() > BUILD_MAX => "the answer takes too long".to_owned(),
            () => return Ok(()),
        };
        Err(Status::new(
            Code::ResourceExhausted,
            format!("{excess}: {}; narrow node_matchers, or exclude_resource_contents", self.matched),
        ))
    }

    /// The redacted content (ADM-24).
    pub fn content(&self, type_url: &TypeUrl, resource: Option<&Arc<Resource>>) -> Option<sluice_proto::Any> {
        let resource = resource.filter(|_| self.has_contents && !type_url.is_secret())?;
        let type_url = TypeUrl::new(&resource.body.type_url);
        let value = redact_bytes(&type_url, &resource.body.value)?;
        Some(sluice_proto::Any { type_url: type_url.as_str().to_owned(), value: value.into() })
    }
}

pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default() }
}

/// The node without its metadata, in which some put tokens.
pub(super) fn shown_node(node: &Node) -> sluice_proto::Node {
    sluice_proto::Node {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        locality: node.locality.as_ref().map(|locality| sluice_proto::Locality {
            region: locality.region.clone(),
            zone: locality.zone.clone(),
            sub_zone: locality.sub_zone.clone(),
        }),
        user_agent_name: node.user_agent_name.clone(),
        ..sluice_proto::Node::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer for so many streams, with a bound of 1 MiB.
    fn of_streams(count: usize) -> Result<ClientStatusResponse, Status> {
        let mut answer = Answer::new(1 << 20, true, format!("{count} streams match"));
        for stream in 0..count {
            let node = sluice_proto::Node { id: format!("node-{stream}"), ..sluice_proto::Node::default() };
            answer.begin(format!("main/{stream}"), node)?;
            let name = "*".to_owned();
            answer.push(GenericXdsConfig {
                type_url: "t".repeat(40),
                name,
                ..GenericXdsConfig::default()
            })?;
        }
        Ok(answer.response)
    }

    #[test]
    fn adm_23_an_answer_beyond_the_bound_says_how_many_match_and_to_narrow() {
        let whole = of_streams(1000).expect("below the bound");
        assert_eq!(whole.config.len(), 1000);
        let status = of_streams(20_000).expect_err("above the bound");
        assert_eq!(status.code, Code::ResourceExhausted);
        assert_eq!(
            status.message,
            "the answer is larger than 1 MiB: 20000 streams match; narrow node_matchers, or exclude_resource_contents"
        );
    }

    #[test]
    fn adm_23_clients_without_rows_count_too() {
        let mut answer = Answer::new(1 << 20, true, String::new());
        let node = || sluice_proto::Node { id: "n".repeat(4096), ..sluice_proto::Node::default() };
        let begin = |stream: &i32| answer.begin(format!("main/{stream}"), node()).is_ok();
        let taken = (0..1000).take_while(begin).count();
        assert!((240..256).contains(&taken), "{taken} nodes of 4 KiB in 1 MiB");
    }

    #[test]
    fn adm_23_the_charge_covers_the_encoded_bytes() {
        let mut answer = Answer::new(usize::MAX, true, String::new());
        for stream in 0..100 {
            answer.begin(format!("main/{stream}"), sluice_proto::Node::default()).expect("no bound");
            for _ in 0..stream {
                let row = GenericXdsConfig { name: "n".repeat(stream * 7), ..GenericXdsConfig::default() };
                answer.push(row).expect("no bound");
            }
        }
        let encoded = answer.response.encoded_len();
        assert!(encoded <= answer.bytes + 8 * 100, "{encoded} bytes, charged {}", answer.bytes);
    }
}
