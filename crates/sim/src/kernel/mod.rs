//! What the modelled kernel does by itself: it marks entries ([`scan`]), promotes in the fault
//! ([`promotion`]) and demotes what is cold ([`reclaim`]).

pub mod promotion;
pub mod reclaim;
pub mod scan;
