//! Fleet safety: a machine per plan, and the evidence of its clients.
//!
//! Pure, as the engine is. Two seams join the two. The *gate*: a source publishes all of its releases
//! ([`sluice_engine::lanes::Published`]), and an [`Admission`](rollout::Admission) chooses the release for a
//! client. The *ledger*: a session tells the sent and the answered content of each part of a subscription
//! ([`Session::sent_parts`](sluice_engine::downstream::Session::sent_parts)). Streams and sources know
//! nothing else of plans.

/// An enum of plain variants with their names in JSON, metrics and the configuration.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        pub enum $enum {
            $($(#[$doc])* $variant,)+
        }

        impl $enum {
            pub const ALL: [$enum; [$($name),+].len()] = [$($enum::$variant),+];

            pub fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)+
                }
            }
        }
    };
}

pub mod rollout;
pub mod evidence;
