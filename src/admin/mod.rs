//! The admin room.
