#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod confirmation;
mod errors;
mod failover;
mod globs;
mod marks;
mod names;
mod nameless;
mod polls;
mod proof;
mod rejections;
mod random;
mod request_size;
mod repetition;
mod requests;
mod script;
mod settling;
mod streams;
mod succession;
mod timers;
mod unasked;
mod variants;
mod versions;
mod wildcards;

use std::time::Duration;

use super::*;
use crate::Time;
use crate::reachability::Reachability;
use crate::upstream::*;
use sluice_xds::{Code, Request, ResourceName, Response, Status, TypeUrl, Variant};
