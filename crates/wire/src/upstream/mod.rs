//! The client side of the wire: encodes requests to upstreams, and decodes their responses.

mod request;
mod resource;
mod response;
mod routes;

pub use request::{encode_message, encode_node, encode_request};
pub use response::{
    DecodeError, decode_delta_response, decode_file_resource, decode_file_response, decode_response,
    decode_rest_response, decode_sotw_response, undelimited,
};
pub use routes::route_names;

#[cfg(test)]
mod tests;
