//! What pghot logs: one table of events, each with a stable id, a level, what it means and what to
//! do about it.
//!
//! Whatever is logged at level info or above is logged by [`event!`], which takes an id of the
//! table and has its level from there:
//!
//! ```
//! use pghot_events::event;
//!
//! let source = "hint_fault";
//! event!(source_started, source, "source {source} started");
//! ```
//!
//! An id that is not in the table does not compile. The id is the field `event` of the log line.

#[doc(hidden)]
pub use tracing;
use tracing::Level;

/// Something that pghot logs.
#[derive(Debug)]
pub struct Event {
    /// Its id: never renamed, so that scripts can ask for it.
    pub name: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What has happened.
    pub meaning: &'static str,
    /// What to do about it; empty if nothing is.
    pub remedy: &'static str,
}

macro_rules! events {
    ($($name:ident $level:ident $meaning:literal $remedy:literal)+) => {
        /// The events by their ids.
        #[expect(non_upper_case_globals, reason = "an id looks the same everywhere")]
        pub mod id {
            use super::{Event, Level};
            $(
                #[doc = $meaning]
                pub const $name: Event = Event {
                    name: stringify!($name),
                    level: Level::$level,
                    meaning: $meaning,
                    remedy: $remedy,
                };
            )+
        }

        /// Every event, in the order in which one meets them.
        pub const EVENTS: &[Event] = &[$(id::$name),+];
    };
}

/// Logs an event: its id, then fields, then a sentence as of `format!`.
#[macro_export]
macro_rules! event {
    ($name:ident, $($said:tt)+) => {
        $crate::tracing::event!(
            $crate::id::$name.level,
            event = $crate::id::$name.name,
            $($said)+
        )
    };
}

events! {
    // --- The daemon ---
    daemon_started INFO
        "pghot promotes from the nodes it names."
        ""
    daemon_stopping INFO
        "A signal ends pghot."
        ""
    daemon_stopped INFO
        "pghot has ended, or begins anew, and has put kernel settings back."
        ""
    daemon_failed ERROR
        "pghot could not start, or ended because of an error."
        "The sentence says."
    lower_tier_awaited INFO
        "There is no lower tier yet; pghot waits for one."
        ""
    memory_changed INFO
        "Memory was added or removed; pghot begins anew with what there is now."
        ""
    tunable_changed INFO
        "A tunable has another value."
        ""
    config_read INFO
        "The config file was read again, with what has changed."
        ""
    config_overridden INFO
        "The config file says something that does not count."
        "Drop the flag or the `pghot set` that says otherwise, or leave it."
    config_warning WARN
        "The config file was read again and cannot be used, or takes a restart in part."
        "Correct the file and reload, or restart pghot."
    own_memory_anywhere WARN
        "The daemon's own memory may lie in the lower tier."
        "The sentence says what the kernel refused."
    own_memory_not_locked WARN
        "The daemon's own memory may be swapped out or demoted."
        "Raise LimitMEMLOCK of the service."
    keeper_not_confined WARN
        "The keeper of kernel settings has more rights than it needs."
        "The sentence says what the kernel refused."
    thread_hung ERROR
        "A thread that moves pages is stuck in the kernel; pghot ends."
        "Find what it waits for: a disk, or a server that does not answer."
    thread_panicked ERROR
        "A bug in pghot."
        "Report the message."
    // --- Kernel settings ---
    setting_restored INFO
        "A kernel setting is as it was before pghot."
        ""
    setting_left_alone WARN
        "Somebody else changed a kernel setting; pghot leaves it so."
        "Set it yourself, if that is not what you want."
    setting_not_restored ERROR
        "A kernel setting could not be put back."
        "Run `pghot restore`."
    setting_contested WARN
        "Somebody else changed a kernel setting that pghot needs; it is set again."
        "Find who did: a tuning tool, or `sysctl --system`."
    setting_lost WARN
        "The same a second time; hint faults stop."
        "Stop the other tool, then `pghot set enabled_sources`."
    setting_adopted WARN
        "Kernel settings are as a killed pghot left them, and its state file is lost; at the end \
            they get the kernel's defaults."
        "Set them yourself, if you had others."
    // --- Hotness sources ---
    source_started INFO
        "A source sees accesses."
        ""
    source_stopped INFO
        "A source sees none any more."
        ""
    source_standing_by INFO
        "Hint faults rest: the kernel would promote in them."
        ""
    source_returned INFO
        "Hint faults are taken again."
        ""
    source_unavailable WARN
        "A source cannot run."
        "The sentence says; `pghot doctor` tells more."
    source_failed ERROR
        "The thread of a source ended by a bug."
        "Report the message; `pghot set enabled_sources` starts it again."
    source_not_changed WARN
        "A source could not be told of a change."
        "The sentence says."
    no_source_enabled WARN
        "No access is seen."
        "`pghot set enabled_sources`."
    mglru_blind WARN
        "MGLRU or debugfs was switched off, so the source mglru sees nothing."
        "Switch it on again."
    sampling_started INFO
        "The source hw_sample samples an event of the processor."
        ""
    sampling_page_faults WARN
        "The source hw_sample samples page faults, as it was told for tests."
        "Unset PGHOT_HW_SAMPLE_EVENT."
    profile_not_recorded WARN
        "The access profile that `record_file` asks for was not recorded or not kept."
        "The sentence says. What can change is tried again after a minute."
    // --- Who asks the daemon, and whom it tells ---
    group_not_admitted WARN
        "The group `pghot` cannot use a socket."
        "Give pghot CAP_CHOWN."
    client_refused WARN
        "A connection to a socket could not be served."
        "The sentence says; most likely descriptors are short."
    metrics_served INFO
        "Metrics are served over HTTP."
        ""
    metrics_stopped WARN
        "Metrics are not served any more."
        "Restart pghot, and report the message."
    spans_not_taken WARN
        "The collector of traces does not take spans; they are counted and dropped."
        "Look at the collector; `otlp_endpoint` names it."
    spans_taken INFO
        "The collector takes spans."
        ""
    log_lines_lost WARN
        "Whoever reads the log was too slow; lines are missing."
        "Look at the reader, or log less: RUST_LOG."
}
