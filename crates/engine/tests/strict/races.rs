//! Cancel and replace: whichever hash is mined decides, the end is told as it happened, and nothing takes effect twice.
//! Everything is asked through another node than the one whose lane does it.

mod abandoned;
mod queued;
mod random;
mod reorged;
mod stages;
