//! One task for each plan: gathers what sources publish, asks the machine, and counts the clients of a push (WAV-12, WAV-19).
//!
//! The task changes nothing at sources and streams. It locks one stream at a time, once a second, and only while a push is
//! under way. After a panic the task begins anew, without the push under way.
//!
//! In order: the commands of operators; the count of clients; the questions to the hook; the rejections and the records of before; the lanes; the cut of a push;
//! the contents that the plan refuses; units that begin anew; the task; and all plans.

pub mod orders;
pub mod count;
mod hook;
mod inspect;
mod rejections;
pub mod records;
pub mod lanes;
mod cut;
mod refuses;
mod anew;
pub mod task;
pub mod table;
