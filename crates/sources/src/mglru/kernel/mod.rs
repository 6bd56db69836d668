//! The source on a kernel: which of its functions tells what is young, and the thread that asks for
//! agings.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use libbpf_rs::OpenObject;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, FuncProto};
use pghot_linux::SysRoot;
use pghot_linux::lru_gen::{self, Commands, Mode};

use super::DESCRIPTOR;
use crate::kernel::attach::{Reporter, choose};
use crate::kernel::worker::Worker;
use crate::kernel::{Availability, Error, OnKernel, Source, SourceCost, Start};
use crate::{Config, Descriptor, ReadySample, SourceStats};
use ager::{Ager, Aging, Shared};
use generations::Generations;

pub(crate) mod ager;
pub(crate) mod generations;
pub(crate) mod page_flags;

/// The entry's half that needs a kernel.
pub(super) const ON_KERNEL: OnKernel = OnKernel {
    check,
    start,
    object: Some(OBJECT),
};

pub(crate) static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mglru.bpf.o"));

/// A kernel function that is called for each page found young.
struct Hook {
    function: &'static str,
    /// The position of its parameter `folio`, without which it is another function.
    folio_at: usize,
    program: &'static str,
}

/// In order of preference: the first tells by its result what is new, without help of the page's
/// flags.
const HOOKS: &[Hook] = &[
    Hook {
        function: "folio_update_gen",
        folio_at: 0,
        program: "mglru_update_gen",
    },
    Hook {
        function: "walk_update_folio",
        folio_at: 1,
        program: "mglru_walk_update",
    },
];

/// `none` makes the source do without a hook, for tests only; see README.md.
const HOOK_VARIABLE: &str = "PGHOT_MGLRU_HOOK";

/// How young pages are told.
enum Way {
    Hook(&'static Hook),
    /// By their flags, before and after an aging.
    Generations,
}

const BY_GENERATIONS: &str = "this kernel inlines the functions that are called for young pages, \
                              so the flags of all pages of the lower tier are read before and \
                              after each aging, which costs more; where they keep the generation \
                              is found out when the source starts";

struct Mglru {
    /// Dropped first: it writes what the programs read.
    worker: Worker,
    shared: Arc<Shared>,
    _link: Option<libbpf_rs::Link>,
    reporter: Reporter,
}

fn check(root: &SysRoot) -> Availability {
    match prerequisites(root).and_then(|()| way(root)) {
        Ok(Way::Hook(_)) => Availability::Available,
        Ok(Way::Generations) => Availability::Untried(BY_GENERATIONS),
        Err(why) => Availability::Unavailable(why),
    }
}

/// MGLRU decides how the whole machine reclaims memory, so pghot does not switch it on: that is the
/// operator's choice.
fn prerequisites(root: &SysRoot) -> Result<(), String> {
    let enabled = lru_gen::enabled_path(root);
    let text = std::fs::read_to_string(&enabled).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "this kernel was built without CONFIG_LRU_GEN".to_owned(),
        _ => format!("cannot read {}: {error}", enabled.display()),
    })?;
    match lru_gen::mode(&text) {
        Mode::Walks => {}
        Mode::Off => {
            return Err(format!(
                "MGLRU is switched off; to use it for reclaim and for this source, write y to {}",
                enabled.display()
            ));
        }
        Mode::WithoutWalks => {
            return Err(format!(
                "MGLRU does not walk page tables: bit 0x2 of {} is not set, or this CPU has no \
                 accessed bit; write y to it",
                enabled.display()
            ));
        }
    }
    let path = lru_gen::path(root);
    match File::open(&path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(if root.sys.join("kernel/debug/sched").exists() {
                format!("this kernel has no {}", path.display())
            } else {
                "debugfs is not mounted; mount it with `mount -t debugfs debugfs \
                 /sys/kernel/debug`"
                    .to_owned()
            })
        }
        Err(error) => Err(format!(
            "cannot open {}: {error}; kernel lockdown forbids it, or pghot does not run as root",
            path.display()
        )),
    }
}

/// What this kernel's BTF offers.
fn way(root: &SysRoot) -> Result<Way, String> {
    match std::env::var_os(HOOK_VARIABLE) {
        Some(value) if value == "none" => return Ok(Way::Generations),
        Some(value) => {
            return Err(format!(
                "{HOOK_VARIABLE} is `{}`; its only value is `none`, for tests: unset it to use \
                 what this kernel has",
                value.display()
            ));
        }
        None => {}
    }
    let path = root.sys.join("kernel/btf/vmlinux");
    let btf = Btf::from_path(&path)
        .map_err(|error| format!("cannot read BTF from {}: {error}", path.display()))?;
    let found = HOOKS.iter().find(|hook| is_in(&btf, hook));
    Ok(found.map_or(Way::Generations, Way::Hook))
}

fn is_in(btf: &Btf<'_>, hook: &Hook) -> bool {
    let function = btf.type_by_name::<Func<'_>>(hook.function);
    let prototype = function.and_then(|function| function.next_type());
    let prototype = prototype.and_then(|prototype| FuncProto::try_from(prototype).ok());
    prototype.is_some_and(|prototype| {
        let folio = prototype.iter().nth(hook.folio_at);
        folio.is_some_and(|parameter| parameter.name.is_some_and(|name| name == "folio"))
    })
}

fn start(start: &mut Start<'_>) -> Result<Box<dyn Source>, Error> {
    let root = start.root.clone();
    let way = way(&root).map_err(Error::Setup)?;
    let span = start.maps.span();
    let prepare = |object: &mut OpenObject| match &way {
        Way::Hook(hook) => {
            choose(object, hook.program);
            Ok(())
        }
        Way::Generations => {
            page_flags::prepare(object);
            generations::prepare(object, span)
        }
    };
    let mut reporter = Reporter::load_with(OBJECT, start.maps, &start.config.rule, prepare)?;
    reporter.find_layout()?;
    let lower = start.topology.lower_tier_nodes();
    // Who accessed a page is not known here; the nearest top-tier node is the likeliest.
    let nodes: BTreeMap<u32, u32> = lower
        .filter_map(|node| Some((node.nid, start.topology.nearest_top_tier_node(node.nid)?)))
        .collect();
    let aging = Aging::new(reporter.map_array("agings")?);
    let mut commands = Commands::new(start.keeper);
    commands.open()?;
    let (link, generations) = match way {
        Way::Hook(hook) => (Some(reporter.attach(hook.program)?), None),
        Way::Generations => {
            let first = nodes.keys().next().copied();
            let nid = first.ok_or_else(|| Error::Setup("there is no lower tier".into()))?;
            let shift = page_flags::find(&root, &mut commands, &mut reporter, nid)?;
            (None, Some(Generations::new(&reporter, span, shift)?))
        }
    };
    let shared = Shared::new(&start.config);
    let ager = Ager::new(
        &root,
        commands,
        start.turns,
        nodes,
        aging,
        generations,
        &shared,
    );
    Ok(Box::new(Mglru {
        worker: Worker::spawn(DESCRIPTOR.name, move |pace| ager.run(pace))?,
        shared,
        _link: link,
        reporter,
    }))
}

impl Source for Mglru {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn configure(&mut self, config: &Config) -> Result<(), Error> {
        self.shared.configure(config);
        self.reporter.set_rule(&config.rule)
    }

    fn stats(&self) -> Result<SourceStats, Error> {
        self.reporter.stats()
    }

    fn drain_ready(&mut self, sink: &mut dyn FnMut(ReadySample)) {
        self.reporter.drain_ready(sink);
    }

    fn is_dead(&self) -> bool {
        self.worker.is_dead()
    }

    fn cost(&self) -> SourceCost {
        SourceCost {
            thread_cpu_ns: self.worker.cpu_ns(),
            ..self.reporter.cost()
        }
    }

    fn details(&self) -> BTreeMap<String, u64> {
        self.shared.details()
    }
}
